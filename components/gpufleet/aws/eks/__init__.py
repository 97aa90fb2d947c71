"""EKS clusters and their networks."""
