"""ARC's own controller and listeners in the sandbox, with GitHub simulated."""
