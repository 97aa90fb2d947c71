"""Arguments of an EKS cluster, and the reference that it passes to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi

from gpufleet.aws.eks.access import ClusterAccess
from gpufleet.aws.eks.network_args import NetworkReference
from gpufleet.aws.karpenter.policies import Partition, Scope

LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]

SystemAmiType = Literal["AL2023_x86_64_STANDARD", "AL2023_ARM_64_STANDARD"]

EBS_CSI_DRIVER = "aws-ebs-csi-driver"

NODE_MONITORING_AGENT = "eks-node-monitoring-agent"
"""Add-on that reports faults of nodes and their GPUs as node conditions."""

SYSTEM_NODE_LABELS: Mapping[str, str] = {"gpu-runners/nodes": "system"}
"""Labels that select the system nodes. System pods with this selector do not keep Karpenter's nodes alive."""

PINNED_ADDONS: Mapping[str, Mapping[str, Any]] = {
    "coredns": {"nodeSelector": SYSTEM_NODE_LABELS},
    EBS_CSI_DRIVER: {"controller": {"nodeSelector": SYSTEM_NODE_LABELS}},
}
"""Configuration values that keep add-ons with Deployments on the system nodes (`aws eks
describe-addon-configuration`)."""

DAEMON_ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Add-ons that run on every node. They are installed before the nodes, because nodes are never ready without the first
two."""

REQUIRED_ADDONS = (*DAEMON_ADDONS, "coredns")
"""Required add-ons; the Pod Identity agent provides Karpenter's role."""

FEWEST_SYSTEM_NODES = 2
"""Minimum number of system nodes, required by Karpenter's two replicas."""

ACCOUNT = r"[0-9]{12}"
"""Pattern of an AWS account ID."""

MINOR_VERSION = r"1\.[0-9]+"
"""Pattern of a Kubernetes minor version."""


@dataclass(frozen=True, kw_only=True)
class ApiEndpoint:
    """Access to the API server. It is always reachable inside the VPC."""

    public: bool = False
    """Whether the API server is reachable from outside. If not, run updates in the VPC or in a network joined to it."""
    cidrs: Sequence[str] = ()
    """IPv4 ranges that may reach the public endpoint."""
    open_to_the_world: bool = False
    """Confirms that `cidrs` wider than /8, up to 0.0.0.0/0, are intended."""
    private_cidrs: Sequence[str] = ()
    """Additional IPv4 ranges that may reach the private endpoint: networks joined by VPN, peering or transit gateway.
    There, the server's name resolves to private addresses, even if there is also a public endpoint."""


@dataclass(frozen=True, kw_only=True)
class SystemNodes:
    """Nodes not managed by Karpenter. They run Karpenter itself, CoreDNS and the ARC controller."""

    instance_types: Sequence[str] = ("m6i.large",)
    """EC2 instance types, all of the AMI's architecture."""
    ami_type: SystemAmiType = "AL2023_x86_64_STANDARD"
    """AMI type of EKS: Amazon Linux 2023 without GPU drivers."""
    release_version: str | None = None
    """Release of the AMI, such as `1.33.5-20251112`; None for the newest one when the group is created."""
    min_size: int = 2
    """Minimum number of nodes. Karpenter's two replicas never share a node."""
    desired_size: int = 2
    """Initial number of nodes."""
    max_size: int = 3
    """Maximum number of nodes; one more than desired leaves room for updates."""
    disk_gib: int = 50
    """Size of the root volume in GiB; gp3, encrypted."""
    critical_addons_only: bool = False
    """Whether to repel other pods with the taint `CriticalAddonsOnly`. Karpenter and the EKS add-ons tolerate it; the
    ARC controller requires a toleration."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Additional labels of the nodes, besides `gpu-runners/nodes=system`."""


@dataclass(frozen=True, kw_only=True)
class ClusterCredentials:
    """Credentials for the cluster's API, if they are not those of the user who runs the update."""

    role_arn: str | None = None
    """Role to assume first: one of the cluster's `admins`, or the role that creates the cluster."""
    profile: str | None = None
    """AWS profile on the machine that runs the update."""


@dataclass(frozen=True, kw_only=True)
class EksClusterReference:
    """Connection details of a cluster, passed to components that run on it."""

    name: str
    """Name of the cluster."""
    region: str
    """AWS region."""
    account_id: str
    """AWS account ID, twelve digits."""
    partition: Partition
    """Partition of the region."""
    endpoint: pulumi.Output[str]
    """URL of the API server."""
    certificate_authority: pulumi.Output[str]
    """CA certificate of the API server, PEM in base64."""
    security_group_id: pulumi.Output[str]
    """Security group of the nodes, tagged for Karpenter."""
    private_subnet_ids: Sequence[pulumi.Input[str]]
    """Subnets of the nodes, tagged for Karpenter."""
    needs: Sequence[pulumi.Resource]
    """Resources that must exist before anything on the cluster, and outlive it; pass them to Karpenter's `needs`."""


@dataclass(frozen=True, kw_only=True)
class EksClusterArgs:
    """Arguments of `EksCluster`."""

    cluster_name: str
    """Name of the cluster; at most 46 characters, so that the name of Karpenter's node role fits IAM's limit."""
    region: str
    """AWS region of the cluster."""
    account_id: str
    """AWS account ID of the cluster, twelve digits."""
    partition: Partition = "aws"
    """Partition of the region: `aws-cn` in China, `aws-us-gov` in GovCloud."""
    kubernetes_version: str
    """Kubernetes minor version, such as `1.33`. EKS upgrades one minor version at a time, and does not downgrade."""
    network: NetworkReference
    """Network of the cluster: `EksNetwork.reference`, or an existing VPC."""
    addons: Mapping[str, str]
    """Exact versions of EKS add-ons, by name. Required: `vpc-cni`, `kube-proxy`, `eks-pod-identity-agent` and
    `coredns`. The component creates the role that `aws-ebs-csi-driver` needs; others get no role."""
    addon_configuration: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Configuration values of add-ons, by name of the add-on, as `aws eks describe-addon-configuration` describes them.
    They are merged into the component's own, which keep add-ons on the system nodes."""
    endpoint: ApiEndpoint = ApiEndpoint()
    """Access to the API server."""
    system_nodes: SystemNodes = SystemNodes()
    """System nodes, which are always running."""
    admins: Mapping[str, str] = field(default_factory=dict)
    """ARNs of IAM roles and users with full access to the cluster, by a name of your choice. Do not list the cluster's
    creator: EKS already adds it, and AWS rejects a second entry."""
    access: Mapping[str, ClusterAccess] = field(default_factory=dict)
    """Access of other IAM roles and users, by a name of your choice."""
    credentials: ClusterCredentials = ClusterCredentials()
    """Credentials that `EksCluster.provider` uses."""
    secrets_key_arn: pulumi.Input[str] | None = None
    """KMS key that encrypts Kubernetes secrets; None creates a key with rotation. Changing the key replaces the
    cluster."""
    log_types: Sequence[LogType] = ("api", "audit", "authenticator", "controllerManager", "scheduler")
    """Control plane logs to store."""
    log_retention_days: int = 90
    """Retention of the logs in days."""
    efa: bool = False
    """Whether nodes have EFA interfaces, which require a rule of their own in the nodes' security group."""
    deletion_protection: bool = True
    """Whether to protect the cluster from deletion, by EKS and by Pulumi, which refuses before it deletes anything.
    Before destroying the cluster, set this to False and run an update."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of all resources that support them."""
    needs: Sequence[pulumi.Resource] = ()
    """Additional resources that must exist before the control plane and outlive it, besides the network's own."""

    @property
    def scope(self) -> Scope:
        """Return the scope of the cluster's IAM policies."""
        return Scope(cluster=self.cluster_name, region=self.region, account=self.account_id, partition=self.partition)

    def tagged(self, part: str) -> dict[str, str]:
        """Return the tags of one part of the cluster: the caller's, and the name shown in the AWS console."""
        return {**self.tags, "Name": f"{self.cluster_name}-{part}"}
