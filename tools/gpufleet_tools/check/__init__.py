"""Findings about a stack, versions and their compatibility."""
