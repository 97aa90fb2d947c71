"""Karpenter: starts and ends EC2 instances as pods need them. One per EKS cluster, before any node pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_aws.cloudwatch import EventRule, EventTarget
from pulumi_aws.eks import AccessEntry, PodIdentityAssociation
from pulumi_aws.iam import Policy, Role, RolePolicyAttachment, ServiceLinkedRole
from pulumi_aws.sqs import Queue, QueuePolicy
from pulumi_kubernetes.helm.v3 import Release

from components.chart import Chart
from components.karpenter_policies import (
    CLUSTER_NAME_LIMIT,
    NODE_POLICIES,
    Partition,
    Scope,
    as_text,
    controller_policies,
    node_trust,
    pod_identity_trust,
    queue_policy,
    web_identity_trust,
)
from components.karpenter_versions import KARPENTER_VERSION
from components.managed_policies import attached_policies

KARPENTER_REGISTRY = "oci://public.ecr.aws/karpenter"

EVENT_PATTERNS = {
    "scheduled-change": ("aws.health", "AWS Health Event"),
    "spot-interruption": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "instance-state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
    "capacity-reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Source and detail type of every event that Karpenter reads, by rule: one for each parser in
pkg/controllers/interruption/messages at v1.14.1."""


@dataclass(frozen=True, kw_only=True)
class FeatureGates:
    """Karpenter's features that can be switched, with the defaults of its chart at 1.14.1."""

    node_overlay: bool = False
    """Honour NodeOverlays (alpha). Needed as soon as a pool shares its GPUs: Karpenter by itself counts physical GPUs
    only, and buys one node for each."""
    node_repair: bool = False
    """Replace nodes that a monitoring agent calls unhealthy (alpha). Forceful: jobs on them end."""
    reserved_capacity: bool = True
    """Use capacity reservations and capacity blocks that a node class selects (beta)."""
    spot_to_spot_consolidation: bool = False
    """Replace spot instances by cheaper spot instances (alpha)."""
    static_capacity: bool = False
    """Node pools with a fixed number of nodes (alpha)."""
    capacity_buffer: bool = False
    """CapacityBuffers, which keep room for pods that are still to come (alpha)."""


@dataclass(frozen=True, kw_only=True)
class PodIdentity:
    """Karpenter gets its role by a Pod Identity association. Needs the addon `eks-pod-identity-agent` on the nodes that
    it runs on."""


@dataclass(frozen=True, kw_only=True)
class Irsa:
    """Karpenter gets its role by its service account's own token (IAM roles for service accounts). For clusters without
    the Pod Identity agent, and for Fargate, where that agent cannot run."""

    provider_arn: pulumi.Input[str]
    """ARN of the IAM OIDC provider of the cluster."""
    provider_url: pulumi.Input[str]
    """Issuer of the cluster, with or without `https://`."""


@dataclass(frozen=True, kw_only=True)
class KarpenterReference:
    """A Karpenter, as its node pools have to know it. Take `Karpenter.reference`, or describe one that runs already."""

    cluster_name: str
    """Name of its cluster, which subnets and security groups are found by: tag `karpenter.sh/discovery`."""
    node_role: str
    """Name of the role of its nodes: `spec.role` of a node class."""
    feature_gates: FeatureGates = FeatureGates()
    """What is switched on in it. A NodeOverlay has no effect without its gate, and nothing says so."""
    version: str = KARPENTER_VERSION
    """Its version."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before a node pool, and has to stay until it is gone: only a running controller ends a
    pool's instances and removes the finalizers of its nodes."""


@dataclass(frozen=True, kw_only=True)
class KarpenterArgs:
    """What Karpenter needs to know."""

    cluster_name: str
    """Name of the EKS cluster, and so of the interruption queue; at most 46 characters, or the node role's name would
    be too long for IAM."""
    region: str
    """Region of the cluster."""
    account_id: str
    """Account of the cluster, twelve digits."""
    partition: Partition = "aws"
    """Partition of the region: `aws-cn` in China, `aws-us-gov` in GovCloud."""
    cluster_endpoint: pulumi.Input[str]
    """URL of the cluster's API server; nodes are told it when they start."""
    version: str = KARPENTER_VERSION
    """Version of both charts. They go together: a controller reads fields that only its own CRDs keep."""
    chart_mirror: str | None = None
    """Folder or registry to take both charts from instead of AWS's public registry."""
    namespace: str = "kube-system"
    """Namespace of the controller; it has to be there already. In `kube-system` the API server serves it before
    ordinary clients."""
    service_account: str = "karpenter"
    """Name of its service account."""
    replicas: int = 2
    """Replicas of the controller. They refuse to share a node, and to run on nodes that Karpenter has started: there
    have to be as many other nodes."""
    cpu: str = "1"
    """CPUs of each replica, requested and at most."""
    memory: str = "1Gi"
    """Memory of each replica, requested and at most."""
    feature_gates: FeatureGates = FeatureGates()
    """What is switched on."""
    interruption_queue: bool = True
    """Make the queue and the rules by which Karpenter learns of spot interruptions, maintenance and instances that have
    been stopped, in time to move pods away."""
    identity: PodIdentity | Irsa = PodIdentity()
    """How the controller gets its AWS role."""
    spot_service_linked_role: bool = False
    """Make the role by which EC2 starts spot instances. An account has it once, and for good: making it where it is
    already fails, and it stays when the cluster goes."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Further tolerations of the controller, as Kubernetes writes them; it tolerates `CriticalAddonsOnly` as it is."""
    values: dict[str, Any] = field(default_factory=dict)
    """Further chart values of the controller, laid over the component's own key by key, so that one setting leaves the
    others as they are. Feature gates are none of them: node pools have to know what is switched on."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before, and has to stay until Karpenter is gone: the cluster, the nodes that the controller
    runs on, the Pod Identity agent."""


class Karpenter(pulumi.ComponentResource):
    """Karpenter's roles and policies, its interruption queue, and its two Helm releases.

    Owns the node role with its access entry, the controller's role, the queue with its rules and, with the releases,
    Karpenter's CRDs. Instances are Karpenter's own: remove every node pool first, and it ends them.

    Edges between AWS resources are outputs and not names, although the names are known: a role that is made anew under
    its old name is another role to EKS, and its access entry has to be made anew with it.
    """

    ready: pulumi.Resource
    """The controller's release: depend on it for "the controller runs"."""
    reference: KarpenterReference
    """What its node pools are told."""

    def __init__(self, name: str, args: KarpenterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        check_cluster_name(args.cluster_name)
        check_values(args.values)
        super().__init__("gpu-runners:index:Karpenter", name, None, opts)
        scope = scope_of(args)
        crds = self._crds(name, args)
        nodes = self._node_identity(name, args, scope)
        controller = self._controller_identity(name, args, scope)
        events = self._interruption_queue(name, args, scope) if args.interruption_queue else []
        spot = self._spot_role(name) if args.spot_service_linked_role else []
        self.ready = self._controller(name, args, [*args.needs, crds, *nodes, *controller, *events, *spot])
        self.reference = KarpenterReference(
            cluster_name=args.cluster_name,
            node_role=scope.node_role,
            feature_gates=args.feature_gates,
            version=args.version,
            needs=[self.ready],
        )
        self.register_outputs({"version": args.version, "node_role": scope.node_role})

    def _child(self, *needs: pulumi.Resource, **options: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*needs], **options)

    def _node_identity(self, name: str, args: KarpenterArgs, scope: Scope) -> list[pulumi.Resource]:
        """The role of the nodes, what it may do, and the cluster's leave to join."""
        role = Role(
            f"{name}-node-role",
            name=scope.node_role,
            description=f"Nodes that Karpenter starts in the cluster {scope.cluster}",
            assume_role_policy=as_text(node_trust(scope)),
            opts=self._child(),
        )
        attached = attached_policies(f"{name}-node-role", role, scope.partition, NODE_POLICIES, self._child())
        # Without it instances start, cost, and never join.
        entry = AccessEntry(
            f"{name}-node-access",
            cluster_name=scope.cluster,
            principal_arn=role.arn,
            type="EC2_LINUX",
            opts=self._child(*args.needs),
        )
        return [role, *attached, entry]

    def _controller_identity(self, name: str, args: KarpenterArgs, scope: Scope) -> list[pulumi.Resource]:
        """The role of the controller, its policies, and the way from its pods to the role."""
        role = Role(
            f"{name}-controller-role",
            name=scope.controller_role,
            description=f"Karpenter in the cluster {scope.cluster}",
            assume_role_policy=controller_trust(args),
            opts=self._child(),
        )
        needs: list[pulumi.Resource] = [role]
        for part, document in controller_policies(scope, interruption_queue=args.interruption_queue).items():
            needs += self._granted(f"{name}-{part}", f"KarpenterController{part}Policy-{scope.cluster}", document, role)
        if isinstance(args.identity, PodIdentity):
            association = PodIdentityAssociation(
                f"{name}-pod-identity",
                cluster_name=scope.cluster,
                namespace=args.namespace,
                service_account=args.service_account,
                role_arn=role.arn,
                opts=self._child(*args.needs),
            )
            needs.append(association)
        return needs

    def _granted(self, name: str, policy_name: str, document: Mapping[str, Any], role: Role) -> list[pulumi.Resource]:
        policy = Policy(name, name=policy_name, policy=as_text(document), opts=self._child())
        attachment = RolePolicyAttachment(
            f"{name}-attachment", role=role.name, policy_arn=policy.arn, opts=self._child()
        )
        return [policy, attachment]

    def _interruption_queue(self, name: str, args: KarpenterArgs, scope: Scope) -> list[pulumi.Resource]:
        """The queue, who may send to it, and the rules that do."""
        queue = Queue(
            f"{name}-interruption",
            name=scope.cluster,
            # Seconds, as in Karpenter's template: a warning older than that is of an instance that is gone.
            message_retention_seconds=300,
            sqs_managed_sse_enabled=True,
            opts=self._child(),
        )
        policy = QueuePolicy(
            f"{name}-interruption-policy",
            queue_url=queue.url,
            policy=as_text(queue_policy(scope)),
            opts=self._child(),
        )
        needs: list[pulumi.Resource] = [queue, policy]
        for rule_name, (source, detail_type) in EVENT_PATTERNS.items():
            rule = EventRule(
                f"{name}-{rule_name}",
                description=f"{detail_type}, for Karpenter in the cluster {scope.cluster}",
                event_pattern=as_text({"source": [source], "detail-type": [detail_type]}),
                opts=self._child(),
            )
            target = EventTarget(f"{name}-{rule_name}-target", rule=rule.name, arn=queue.arn, opts=self._child(policy))
            needs += [rule, target]
        return needs

    def _spot_role(self, name: str) -> list[pulumi.Resource]:
        """The account's role for spot instances; other clusters stand on it too, so that it is left behind."""
        role = ServiceLinkedRole(
            f"{name}-spot-role", aws_service_name="spot.amazonaws.com", opts=self._child(retain_on_delete=True)
        )
        return [role]

    def _crds(self, name: str, args: KarpenterArgs) -> Release:
        """The CRDs in a release of their own: those in the controller's chart are installed once and never updated."""
        chart = karpenter_chart("karpenter-crd", args)
        return chart.release(
            f"{name}-crd",
            release="karpenter-crd",
            namespace=args.namespace,
            timeout=300,
            opts=self._child(*args.needs),
        )

    def _controller(self, name: str, args: KarpenterArgs, needs: Sequence[pulumi.Resource]) -> Release:
        """The controller; it goes first when all is destroyed, while it still may do what ends its work."""
        chart = karpenter_chart("karpenter", args)
        return chart.release(
            name,
            release="karpenter",
            namespace=args.namespace,
            values=controller_values(args),
            skip_crds=True,
            timeout=300,
            opts=self._child(*needs),
        )


def check_cluster_name(cluster_name: str) -> None:
    """Raises ValueError for a name that IAM would refuse, half way through an update."""
    if len(cluster_name) > CLUSTER_NAME_LIMIT:
        raise ValueError(
            f"cluster name {cluster_name!r} has {len(cluster_name)} characters; at most {CLUSTER_NAME_LIMIT} leave room"
            " for the role KarpenterNodeRole-<cluster>"
        )


def check_values(values: Mapping[str, Any]) -> None:
    """Raises ValueError for a gate that node pools would not hear of."""
    if "featureGates" in values.get("settings", {}):
        raise ValueError("values.settings.featureGates: switch features by feature_gates, so that node pools know them")


def scope_of(args: KarpenterArgs) -> Scope:
    return Scope(cluster=args.cluster_name, region=args.region, account=args.account_id, partition=args.partition)


def karpenter_chart(name: str, args: KarpenterArgs) -> Chart:
    return Chart(name=name, registry=KARPENTER_REGISTRY, version=args.version, mirror=args.chart_mirror)


def controller_trust(args: KarpenterArgs) -> pulumi.Input[str]:
    """Who may take the controller's role."""
    if isinstance(args.identity, PodIdentity):
        return as_text(pod_identity_trust())
    namespace, account = args.namespace, args.service_account
    provider = pulumi.Output.all(args.identity.provider_arn, args.identity.provider_url)
    return provider.apply(lambda known: as_text(web_identity_trust(known[0], known[1], namespace, account)))


def controller_values(args: KarpenterArgs) -> dict[str, Any]:
    """Chart values of the controller."""
    amounts = {"cpu": args.cpu, "memory": args.memory}
    values: dict[str, Any] = {
        "replicas": args.replicas,
        "serviceAccount": service_account(args),
        # A list of ours replaces the chart's, so that the chart's own toleration is in it.
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            *(dict(toleration) for toleration in args.tolerations),
        ],
        # CPU too has a limit, as in Karpenter's own instructions (scripts/step08-apply-helm-chart.sh at v1.14.1).
        "controller": {"resources": {"requests": amounts, "limits": amounts}},
        "settings": {
            "clusterName": args.cluster_name,
            "clusterEndpoint": args.cluster_endpoint,
            "interruptionQueue": args.cluster_name if args.interruption_queue else "",
            "featureGates": feature_gate_values(args.feature_gates),
        },
    }
    return laid_over(values, args.values)


def laid_over(values: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Chart values with further ones over them, as Helm merges: maps key by key, everything else as a whole."""
    merged = dict(values)
    for key, value in further.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def service_account(args: KarpenterArgs) -> dict[str, Any]:
    """Chart value `serviceAccount`. Pod Identity needs no annotation: the association names the account."""
    account: dict[str, Any] = {"create": True, "name": args.service_account}
    if isinstance(args.identity, Irsa):
        scope = scope_of(args)
        account["annotations"] = {"eks.amazonaws.com/role-arn": scope.iam_arn(f"role/{scope.controller_role}")}
    return account


def feature_gate_values(gates: FeatureGates) -> dict[str, bool]:
    """Chart value `settings.featureGates`, every gate of the chart in it."""
    return {
        "nodeOverlay": gates.node_overlay,
        "nodeRepair": gates.node_repair,
        "reservedCapacity": gates.reserved_capacity,
        "spotToSpotConsolidation": gates.spot_to_spot_consolidation,
        "staticCapacity": gates.static_capacity,
        "capacityBuffer": gates.capacity_buffer,
    }
