"""Kubernetes on existing machines, by kubespray."""
