"""Preflight checks of hosts: facts, measurements between hosts, and unmet requirements. Nothing is installed."""
