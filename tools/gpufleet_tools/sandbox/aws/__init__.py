"""AWS of a sandbox: the simulated API, the real Karpenter, simulated instances."""
