"""The command `gpufleet`, and what it does with a fleet that need not exist."""
