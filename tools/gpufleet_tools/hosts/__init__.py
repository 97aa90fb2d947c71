"""Survey of a stack's machines over SSH."""
