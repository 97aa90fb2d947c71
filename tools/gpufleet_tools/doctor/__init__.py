"""`gpufleet doctor`: a read-only look at a live cluster."""
