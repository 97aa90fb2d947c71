"""How a client reaches an EKS cluster."""

from __future__ import annotations

import json

from components.eks_cluster_args import ClusterCredentials


def kubeconfig(
    cluster: str, region: str, endpoint: str, certificate_authority: str, credentials: ClusterCredentials
) -> str:
    """A kubeconfig, in JSON. Tokens are made when they are needed, by the `aws` command; none is kept."""
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", cluster, "--output", "json"]
    if credentials.role_arn is not None:
        arguments += ["--role-arn", credentials.role_arn]
    if credentials.profile is not None:
        arguments += ["--profile", credentials.profile]
    token = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": arguments,
        "interactiveMode": "Never",
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": endpoint, "certificate-authority-data": certificate_authority},
            }
        ],
        "users": [{"name": cluster, "user": {"exec": token}}],
    }
    return json.dumps(config)
