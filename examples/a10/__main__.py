"""Runners on NVIDIA A10, as the stack file describes them."""

from gpufleet_stacks.program import run

fleet = run()
