"""Runners on NVIDIA A10 machines, described in the stack file."""

from gpufleet_stacks.program import run

fleet = run()
