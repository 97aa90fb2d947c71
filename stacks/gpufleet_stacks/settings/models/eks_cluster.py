"""Settings of an EKS cluster whose nodes Karpenter provisions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpufleet.aws.ebs.storage_class_args import ReclaimPolicy
from gpufleet.aws.eks.access import NAMESPACE_PATTERN, AccessPolicyName
from gpufleet.aws.eks.cluster_args import FEWEST_SYSTEM_NODES, MINOR_VERSION, LogType
from gpufleet.aws.eks.cluster_rules import LOG_RETENTION_DAYS
from gpufleet.aws.karpenter.policies import CLUSTER_NAME_LIMIT, Partition, partition_of
from gpufleet_stacks.settings.models.aws_value_types import (
    Account,
    Arn,
    Cidr,
    InstanceType,
    Iops,
    Region,
    Tags,
    Throughput,
)
from gpufleet_stacks.settings.models.eks_network import Network
from gpufleet_stacks.settings.models.karpenter import KarpenterPool, KarpenterSettings
from gpufleet_stacks.settings.models.value_types import MOST, Filled, Image, Model, Name, ObjectName, Switch, Text

NamespacePattern = Annotated[str, Text(NAMESPACE_PATTERN, 63, "a namespace, with * as a wildcard: ml or ml-*")]
Minor = Annotated[str, Text(MINOR_VERSION, 5, "a minor version of Kubernetes, in quotes: '1.35'")]


class Endpoint(Model):
    """Access to the cluster's API server. Its private addresses are always reachable inside the VPC."""

    public_access_from: tuple[Cidr, ...] = ()
    """Address ranges outside the VPC that may reach the public endpoint. If empty, there is no public endpoint, and
    `pulumi up` must run where the VPC is reachable."""
    open_to_the_world: Switch = False
    """Confirms that 0.0.0.0/0 is intended."""
    private_access_from: tuple[Cidr, ...] = ()
    """Additional address ranges that may reach the private endpoint: networks joined by VPN, peering or transit
    gateway, or secondary ranges of an existing VPC."""


class SystemNodesSettings(Model):
    """Managed node group that runs Karpenter, CoreDNS and the ARC controller."""

    instance_type: InstanceType = "m6i.large"
    """Instance type of the nodes."""
    count: Annotated[int, Field(strict=True, ge=FEWEST_SYSTEM_NODES, le=100)] = 2
    """Number of nodes. At least two: Karpenter's two replicas never share a node, and never run on nodes that Karpenter
    provisioned."""


class SmokeWorkload(Model):
    """Sleeping pods that each request GPUs, to prove that nodes are provisioned. While they exist, their GPU nodes are
    billed."""

    pool: Name
    """Node pool of the pods."""
    image: Image
    """Container image of the pods."""
    replicas: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 2
    """Number of pods."""
    gpus: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    """Number of GPUs of one pod."""


class ControlPlaneLogs(Model):
    """Control plane logs in CloudWatch."""

    types: tuple[LogType, ...] = ("api", "audit", "authenticator", "controllerManager", "scheduler")
    """Logs to store."""
    retention_days: Annotated[int, Field(strict=True, json_schema_extra={"enum": list(LOG_RETENTION_DAYS)})] = 90
    """Retention of log entries in days. CloudWatch accepts certain numbers only."""


class AccessPolicySettings(Model):
    """An EKS access policy and its scope."""

    policy: AccessPolicyName
    """Name of the policy. `AmazonEKSViewPolicy` reads all but Secrets; `AmazonEKSEditPolicy` also changes workloads and
    reads Secrets; `AmazonEKSAdminPolicy` also manages roles of a namespace."""
    namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces in which the policy applies, with `*` as a wildcard; if omitted, the whole cluster."""


class AccessSettings(Model):
    """Access of one IAM role or user to the cluster."""

    principal: Arn
    """ARN of the IAM role or user; each may occur once."""
    policies: tuple[AccessPolicySettings, ...] = ()
    """EKS access policies; their permissions add up."""
    groups: tuple[Filled, ...] = ()
    """Kubernetes groups, to which you can bind roles."""


class StorageClassSettings(Model):
    """A StorageClass of encrypted gp3 volumes. A volume is created in the zone of its first pod, and can grow."""

    default: Switch = False
    """Whether claims without a class get this one. EKS's own class, `gp2`, is not a default."""
    iops: Iops | None = None
    """IOPS of each volume; if omitted, 3000. AWS allows at most 500 IOPS for each GiB."""
    throughput: Throughput | None = None
    """Throughput of each volume in MiB/s; if omitted, 125."""
    key: Arn | None = None
    """ARN of the KMS key of the volumes; if omitted, the account's default key. The key's policy must let the role
    `<cluster>-ebs-csi-driver` use it."""
    reclaim_policy: ReclaimPolicy = "Delete"
    """Whether a volume is deleted with its claim."""


class CachedRegistrySettings(Model):
    """A registry whose images nodes pull through ECR."""

    registry: Filled
    """Host of the registry: `docker.io`, `ghcr.io`, `public.ecr.aws`, `quay.io`, `registry.gitlab.com` or
    `registry.k8s.io`."""
    credentials: Arn | None = None
    """ARN of the Secrets Manager secret with credentials, whose name must begin with `ecr-pullthroughcache/`. Required
    for `docker.io`, `ghcr.io` and `registry.gitlab.com`."""


class EksClusterSettings(Model):
    """An EKS cluster that this stack creates."""

    kind: Literal["eks"]
    """An EKS cluster."""
    name: Annotated[
        str,
        Text(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", CLUSTER_NAME_LIMIT, "a name: lower case letters, digits and '-'"),
    ]
    """Name of the cluster; IAM roles and the interruption queue are named after it."""
    region: Region
    """AWS region."""
    account: Account
    """ID of the AWS account. Credentials of other accounts are rejected."""
    kubernetes_version: Minor
    """Minor version of Kubernetes."""
    network: Network
    """The VPC."""
    endpoint: Endpoint = Endpoint()
    """Access to the API server."""
    administrators: dict[Name, Arn] = {}
    """IAM roles and users who administer the cluster, by a name of your choice. The identity that creates the cluster
    is always an administrator."""
    access: dict[Name, AccessSettings] = {}
    """Access of other IAM roles and users to the cluster, such as teams, by a name of your choice."""
    logs: ControlPlaneLogs = ControlPlaneLogs()
    """Logs of the control plane."""
    system_nodes: SystemNodesSettings = SystemNodesSettings()
    """Nodes for Karpenter and other system components."""
    addons: dict[Name, Filled]
    """EKS add-ons and their versions, as listed by `aws eks describe-addon-versions`. Required: vpc-cni, coredns,
    kube-proxy and eks-pod-identity-agent."""
    addon_configuration: dict[Name, dict[str, Any]] = {}
    """Configuration values of add-ons, by name of the add-on, as `aws eks describe-addon-configuration` lists them:
    `{vpc-cni: {enableNetworkPolicy: "true", env: {ENABLE_PREFIX_DELEGATION: "true"}}}`. Node selectors of CoreDNS and
    the EBS CSI controller are already set."""
    storage_classes: dict[ObjectName, StorageClassSettings] = {}
    """StorageClasses for volume claims, by name. Requires the add-on `aws-ebs-csi-driver`."""
    image_cache: dict[Name, CachedRegistrySettings] = {}
    """Registries whose images nodes pull through ECR's pull-through cache, by the first part of their repositories'
    names there: `{quay: {registry: quay.io}}`. Applies to images of runners, their containers and the smoke workload.
    An account has one rule for each such prefix in a region."""
    deletion_protection: Switch = True
    """Whether to refuse to delete the cluster. Before deleting it, set this to false and run `pulumi up`."""
    tags: Tags = {}
    """Tags of every AWS resource."""
    karpenter: KarpenterSettings = KarpenterSettings()
    """Settings of Karpenter itself."""
    node_pools: Annotated[dict[Name, KarpenterPool], Field(min_length=1)]
    """Node pools that Karpenter provisions, by name of the NodePool."""
    smoke_workload: SmokeWorkload | None = None
    """Pods that prove that GPU nodes are provisioned; if omitted, none."""

    @property
    def partition(self) -> Partition:
        """Return the AWS partition of the region."""
        return partition_of(self.region)
