"""Kubeconfig of an EKS cluster."""

from __future__ import annotations

import json

from gpufleet.aws.eks.cluster_args import ClusterCredentials


def kubeconfig(
    cluster: str, region: str, endpoint: str, certificate_authority: str, credentials: ClusterCredentials
) -> str:
    """Return a kubeconfig in JSON. It contains no token; the `aws` command issues one when a client connects."""
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
