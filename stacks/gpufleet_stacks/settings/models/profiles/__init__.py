"""Models of profiles, with what Kubernetes itself has in a pod."""
