"""Document 004's pools with a network, a cluster's name and Karpenter, as a program: small enough to be run often."""

from __future__ import annotations

import dataclasses
from typing import Any

import pulumi
from pulumi_aws import Provider as Account
from pulumi_aws import ec2
from pulumi_kubernetes import Provider

from gpufleet.aws import FeatureGates, Karpenter, KarpenterArgs, KarpenterNodePool, KarpenterNodePoolArgs
from gpufleet.nvidia import NvidiaDevicePlugin, NvidiaDevicePluginArgs
from gpufleet_tools.plan.plan import Plan
from tests.node_pools import CPU, DISCOVERY, GPU
from tests.recording import recorded

REGION = "eu-west-1"
CLUSTER = DISCOVERY["karpenter.sh/discovery"]
PODS_OF_A_NODE = 10


def plan(*, overlay: bool = True, plugin: bool = True, gpu: KarpenterNodePoolArgs = GPU, **values: Any) -> Plan:
    """What the program registers. `overlay` is the feature gate, `values` are further chart values of Karpenter's."""

    def program() -> None:
        account = Account("account", region=REGION)
        opts = pulumi.ResourceOptions(providers=[Provider("cluster", context="cluster"), account])
        network(pulumi.ResourceOptions(provider=account))
        args = KarpenterArgs(
            cluster_name=CLUSTER,
            region=REGION,
            account_id="123456789012",
            cluster_endpoint="https://cluster.example.com",
            feature_gates=FeatureGates(node_overlay=overlay),
            values=values,
        )
        role = Karpenter("karpenter", args, opts).reference.node_role
        for pool in (CPU, gpu):
            made = dataclasses.replace(pool, node_class=dataclasses.replace(pool.node_class, role=role))
            KarpenterNodePool(pool.pool, made, opts)
        if plugin:
            NvidiaDevicePlugin("plugin", NvidiaDevicePluginArgs(sharing=gpu.sharing), opts)

    return recorded(program)


def network(opts: pulumi.ResourceOptions) -> None:
    """A subnet in each of three zones, and a security group for nodes; a second network is not for them."""
    ec2.Vpc("other", cidr_block="10.1.0.0/16", opts=opts)
    vpc = ec2.Vpc("network", cidr_block="10.0.0.0/16", opts=opts)
    for number, zone in enumerate("abc"):
        ec2.Subnet(
            f"nodes-{zone}",
            vpc_id=vpc.id,
            cidr_block=f"10.0.{number}.0/24",
            availability_zone=f"{REGION}{zone}",
            tags=DISCOVERY,
            opts=opts,
        )
    ec2.Subnet("public", vpc_id=vpc.id, cidr_block="10.0.100.0/24", availability_zone=f"{REGION}a", opts=opts)
    ec2.SecurityGroup("nodes", name="nodes", vpc_id=vpc.id, tags=DISCOVERY, opts=opts)


def workload(replicas: int) -> dict[str, Any]:
    """The document's Deployment."""
    labels = {"app": "gpu"}
    pod = {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": "gpu-container",
                "image": "tensorflow/tensorflow:latest-gpu",
                "command": ["sleep", "infinity"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpu", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
