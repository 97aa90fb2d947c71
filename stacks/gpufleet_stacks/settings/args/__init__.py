"""Settings as arguments of components."""
