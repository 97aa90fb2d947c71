"""What an EKS cluster is told, and what others are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pulumi

from components.eks_network_args import NetworkReference
from components.karpenter_policies import Partition, Scope

LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]

SystemAmiType = Literal["AL2023_x86_64_STANDARD", "AL2023_ARM_64_STANDARD"]

EBS_CSI_DRIVER = "aws-ebs-csi-driver"

DAEMON_ADDONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Addons that run on every node: a node without the first two is never ready, so that they come before the nodes."""

REQUIRED_ADDONS = (*DAEMON_ADDONS, "coredns")
"""Addons that no cluster can do without; Karpenter gets its role by the Pod Identity agent."""


@dataclass(frozen=True, kw_only=True)
class ApiEndpoint:
    """Where the API server can be reached. From within the VPC it always can."""

    public: bool = False
    """Whether from outside too. If not, whoever runs an update has to be in the VPC or in a network joined to it."""
    cidrs: Sequence[str] = ()
    """IPv4 networks that may reach the public endpoint."""
    open_to_the_world: bool = False
    """Said in so many words: `cidrs` may be wider than /8, up to everybody."""


@dataclass(frozen=True, kw_only=True)
class SystemNodes:
    """Nodes that Karpenter does not own: where Karpenter itself runs, CoreDNS and the controller of runners."""

    instance_types: Sequence[str] = ("m6i.large",)
    """EC2 instance types, all of the image's architecture."""
    ami_type: SystemAmiType = "AL2023_x86_64_STANDARD"
    """Family of images, as EKS names it: Amazon Linux 2023 without drivers of GPUs."""
    release_version: str | None = None
    """Release of the image, such as `1.33.5-20251112`; whatever EKS has newest when the group is made, if none."""
    min_size: int = 2
    """Nodes at least. Two replicas of Karpenter refuse to share one."""
    desired_size: int = 2
    """Nodes to start with."""
    max_size: int = 3
    """Nodes at most; one more than desired leaves room for an update."""
    disk_gib: int = 50
    """Size of the root volume in GiB, gp3 and encrypted."""
    critical_addons_only: bool = False
    """Keep other pods away by the taint `CriticalAddonsOnly`. Karpenter and EKS's addons tolerate it; the controller of
    runners has to be told to."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes, beside `gpu-runners/nodes=system`."""


@dataclass(frozen=True, kw_only=True)
class ClusterCredentials:
    """With whose rights the cluster's API is used, where not with those of whoever runs the update."""

    role_arn: str | None = None
    """Role to take first: one of the cluster's `admins`, or that which creates the cluster."""
    profile: str | None = None
    """Profile in the AWS configuration of the machine that runs the update."""


@dataclass(frozen=True, kw_only=True)
class EksClusterReference:
    """A cluster, as what runs on it has to know it."""

    name: str
    """Its name."""
    region: str
    """Its region."""
    account_id: str
    """Its account, twelve digits."""
    partition: Partition
    """Partition of the region."""
    endpoint: pulumi.Output[str]
    """URL of its API server."""
    certificate_authority: pulumi.Output[str]
    """Certificate of the authority that its API server's is from, PEM in Base64."""
    security_group_id: pulumi.Output[str]
    """Security group of its nodes, tagged for Karpenter."""
    private_subnet_ids: Sequence[pulumi.Input[str]]
    """Subnets of its nodes, tagged for Karpenter."""
    needs: Sequence[pulumi.Resource]
    """What has to be there before anything on the cluster, and has to stay until it is gone: Karpenter's `needs`."""


@dataclass(frozen=True, kw_only=True)
class EksClusterArgs:
    """What an EKS cluster needs to know."""

    cluster_name: str
    """Name of the cluster; at most 46 characters, or the name of Karpenter's node role would be too long for IAM."""
    region: str
    """Region of the cluster."""
    account_id: str
    """Account of the cluster, twelve digits."""
    partition: Partition = "aws"
    """Partition of the region: `aws-cn` in China, `aws-us-gov` in GovCloud."""
    kubernetes_version: str
    """Minor version of Kubernetes, such as `1.33`. EKS goes up one at a time, and never down."""
    network: NetworkReference
    """Where it is: `EksNetwork.reference`, or a VPC that is there already."""
    addons: Mapping[str, str]
    """Exact versions of EKS's addons by name: `vpc-cni`, `kube-proxy`, `eks-pod-identity-agent` and `coredns` have to
    be there, `aws-ebs-csi-driver` gets the role that it needs, and others are taken as they are."""
    endpoint: ApiEndpoint = ApiEndpoint()
    """Where the API server can be reached."""
    system_nodes: SystemNodes = SystemNodes()
    """The nodes that are always there."""
    admins: Mapping[str, str] = field(default_factory=dict)
    """ARNs of IAM roles and users who may do everything in the cluster, by a name of your own for each. Whoever creates
    the cluster may anyway, by an entry of EKS's own: naming it here too is refused by AWS."""
    credentials: ClusterCredentials = ClusterCredentials()
    """With whose rights `EksCluster.provider` works."""
    secrets_key_arn: pulumi.Input[str] | None = None
    """KMS key that Kubernetes secrets are encrypted with; without it the cluster has one of its own, which is rotated.
    Another key makes another cluster."""
    log_types: Sequence[LogType] = ("api", "audit", "authenticator", "controllerManager", "scheduler")
    """Logs of the control plane that are kept."""
    log_retention_days: int = 90
    """Days that they are kept for."""
    deletion_protection: bool = True
    """Have EKS refuse to delete the cluster, whoever asks, and Pulumi refuse before it deletes anything. To destroy it,
    switch this off in an update before."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of everything that can have some."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before the control plane, and has to stay until it is gone, beside the network's own."""

    @property
    def scope(self) -> Scope:
        """The cluster, as policies name it."""
        return Scope(cluster=self.cluster_name, region=self.region, account=self.account_id, partition=self.partition)

    def tagged(self, part: str) -> dict[str, str]:
        """Tags of a part of the cluster: the caller's, and the name that AWS's console shows."""
        return {**self.tags, "Name": f"{self.cluster_name}-{part}"}
