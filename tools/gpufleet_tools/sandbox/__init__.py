"""A stack on this machine: a real control plane with simulated nodes."""
