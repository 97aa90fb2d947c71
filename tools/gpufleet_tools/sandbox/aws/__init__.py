"""Simulated AWS of a sandbox: the API and instances, with the real Karpenter."""
