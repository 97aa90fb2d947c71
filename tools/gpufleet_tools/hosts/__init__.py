"""Machines of a stack file, surveyed over SSH."""
