"""Policy: rules for the resources of every program."""
