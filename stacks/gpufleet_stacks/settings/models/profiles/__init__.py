"""Models of profiles, and validation of their objects in Kubernetes syntax."""
