"""Runners in two AWS regions, each described in its stack file."""

from gpufleet_stacks.program import run

fleet = run()
