"""The subcommand `upgrade arc`: another version of ARC, as changes of the stack file that can be reviewed."""
