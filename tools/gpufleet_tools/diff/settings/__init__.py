"""Settings of a stack file before and after, and what a change of each means."""
