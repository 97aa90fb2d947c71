"""The command `gpufleet`: previews, checks and rehearsals of stacks."""
