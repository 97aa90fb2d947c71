"""Findings about a stack, pinned versions and their compatibility."""
