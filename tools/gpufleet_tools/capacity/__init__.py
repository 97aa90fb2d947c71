"""Jobs that a stack's node pools hold, and what they cost."""
