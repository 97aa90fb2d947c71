"""Findings about stacks on EKS: settings that cost money or jobs."""
