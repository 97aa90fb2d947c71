"""Karpenter, its IAM policies and its node pools."""
