"""The command `gpufleet maintenance`: a node is freed, its machine reboots, and the node takes jobs again."""
