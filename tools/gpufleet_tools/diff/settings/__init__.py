"""Changes of the settings in a stack file, and their effects."""
