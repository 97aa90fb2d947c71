"""Scale sets of others as entries of a stack file."""
