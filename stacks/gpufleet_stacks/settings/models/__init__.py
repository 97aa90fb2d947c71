"""The models of a stack file's settings."""
