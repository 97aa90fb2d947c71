"""The Kubernetes control plane of a sandbox, its processes and its objects."""
