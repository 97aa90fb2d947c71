"""Karpenter, which launches and terminates EC2 instances as pods need them. One per EKS cluster, before any node
pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_aws.cloudwatch import EventRule, EventTarget
from pulumi_aws.eks import AccessEntry, PodIdentityAssociation
from pulumi_aws.iam import Policy, Role, RolePolicyAttachment, ServiceLinkedRole
from pulumi_aws.sqs import Queue, QueuePolicy
from pulumi_kubernetes.helm.v3 import Release

from gpufleet.aws._managed_policies import attached_policies
from gpufleet.aws.eks.cluster_rules import cluster_name_problems
from gpufleet.aws.karpenter.policies import (
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
from gpufleet.aws.karpenter.versions import KARPENTER_VERSION
from gpufleet.chart import Chart, laid_over
from gpufleet.problem import Problem, refuse

KARPENTER_REGISTRY = "oci://public.ecr.aws/karpenter"

EVENT_PATTERNS = {
    "scheduled-change": ("aws.health", "AWS Health Event"),
    "spot-interruption": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "instance-state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
    "capacity-reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Source and detail type of all events that Karpenter reads, by rule: one for each parser in
pkg/controllers/interruption/messages at v1.14.1."""


@dataclass(frozen=True, kw_only=True)
class FeatureGates:
    """Feature gates of Karpenter, with the defaults of its chart at 1.14.1."""

    node_overlay: bool = False
    """Whether to enable NodeOverlays (alpha). Required if a pool shares GPUs: otherwise Karpenter counts physical GPUs
    only, and provisions one for each pod."""
    node_repair: bool = False
    """Whether to replace nodes that stay unhealthy for 30 minutes, or 10 for GPU faults (alpha). Jobs on them are
    killed. The add-on `eks-node-monitoring-agent` reports all faults except a stopped kubelet."""
    reserved_capacity: bool = True
    """Whether to use the capacity reservations and capacity blocks that a node class selects (beta)."""
    spot_to_spot_consolidation: bool = False
    """Whether to replace spot instances with cheaper spot instances (alpha)."""
    static_capacity: bool = False
    """Whether to enable node pools with a fixed number of nodes (alpha)."""
    capacity_buffer: bool = False
    """Whether to enable CapacityBuffers, which reserve room for future pods (alpha)."""


@dataclass(frozen=True, kw_only=True)
class PodIdentity:
    """Role for Karpenter through a Pod Identity association. Requires the add-on `eks-pod-identity-agent` on
    Karpenter's nodes."""


@dataclass(frozen=True, kw_only=True)
class Irsa:
    """Role for Karpenter through its service account's token (IAM roles for service accounts). For clusters without the
    Pod Identity agent, and for Fargate, where that agent cannot run."""

    provider_arn: pulumi.Input[str]
    """ARN of the IAM OIDC provider of the cluster."""
    provider_url: pulumi.Input[str]
    """OIDC issuer of the cluster, with or without `https://`."""


@dataclass(frozen=True, kw_only=True)
class ServiceMonitor:
    """A ServiceMonitor for Karpenter's metrics. The chart creates it only if the Prometheus operator's CRDs exist when
    its release is installed or upgraded (charts/karpenter/templates/servicemonitor.yaml at v1.14.1)."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels by which Prometheus selects ServiceMonitors, such as `release`."""


@dataclass(frozen=True, kw_only=True)
class KarpenterReference:
    """Connection details of a Karpenter installation, passed to its node pools. Use `Karpenter.reference`, or describe
    an existing one."""

    cluster_name: str
    """Name of the cluster; value of the tag `karpenter.sh/discovery` on subnets and security groups."""
    node_role: str
    """Name of the nodes' role, the `spec.role` of a node class."""
    feature_gates: FeatureGates = FeatureGates()
    """Feature gates of the controller. Without its gate, a NodeOverlay silently has no effect."""
    version: str = KARPENTER_VERSION
    """Version of Karpenter."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before a node pool, and outlive it. Only a running controller terminates a pool's
    instances and removes its nodes' finalizers."""


@dataclass(frozen=True, kw_only=True)
class KarpenterArgs:
    """Arguments of `Karpenter`."""

    cluster_name: str
    """Name of the EKS cluster and of the interruption queue; at most 46 characters, so that the node role's name fits
    IAM's limit."""
    region: str
    """AWS region of the cluster."""
    account_id: str
    """AWS account ID of the cluster, twelve digits."""
    partition: Partition = "aws"
    """Partition of the region: `aws-cn` in China, `aws-us-gov` in GovCloud."""
    cluster_endpoint: pulumi.Input[str]
    """URL of the cluster's API server; nodes use it to join."""
    version: str = KARPENTER_VERSION
    """Version of both charts. They must match: the controller reads fields that only CRDs of its own version have."""
    chart_mirror: str | None = None
    """Folder or registry of both charts, instead of AWS's public registry."""
    namespace: str = "kube-system"
    """Namespace of the controller; it must exist already. In `kube-system`, the API server prioritises its requests
    over ordinary clients."""
    service_account: str = "karpenter"
    """Name of the controller's service account."""
    replicas: int = 2
    """Number of replicas of the controller. They never share a node, and never run on Karpenter's own nodes; there must
    be as many other nodes."""
    cpu: str = "1"
    """CPUs of each replica: request and limit."""
    memory: str = "1Gi"
    """Memory of each replica: request and limit."""
    isolated: bool = False
    """Whether the VPC has no internet access. Karpenter then requests no prices, because AWS offers no VPC endpoint for
    them."""
    feature_gates: FeatureGates = FeatureGates()
    """Feature gates of the controller."""
    service_monitor: ServiceMonitor | None = None
    """ServiceMonitor for Karpenter's metrics; None creates none."""
    interruption_queue: bool = True
    """Whether to create the queue and rules that notify Karpenter of spot interruptions, maintenance and stopped
    instances, in time to move pods away."""
    identity: PodIdentity | Irsa = PodIdentity()
    """Method by which the controller obtains its AWS role."""
    spot_service_linked_role: bool = False
    """Whether to create the account's service-linked role for spot instances. An account has only one: creating it
    again fails, and it remains when the cluster is deleted."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Additional tolerations of the controller, in Kubernetes syntax; `CriticalAddonsOnly` is always tolerated."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Additional chart values of the controller, merged into the component's own key by key. Feature gates are not
    allowed here, because node pools must know them."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before Karpenter and outlive it: the cluster, the controller's nodes, the Pod Identity
    agent."""


class Karpenter(pulumi.ComponentResource):
    """Karpenter with its IAM roles and policies, its interruption queue, and its two Helm releases.

    Owns the node role with its access entry, the controller's role, the queue with its rules and, through the releases,
    Karpenter's CRDs. Karpenter owns the instances: remove all node pools first, so that it terminates them.

    AWS resources refer to each other by outputs, not literal names. If a role is replaced under its old name, EKS sees
    a different role, so its access entry must be replaced too.
    """

    ready: pulumi.Resource
    """The controller's Helm release; depend on it to wait for a running controller."""
    reference: KarpenterReference
    """Connection details for Karpenter's node pools."""

    def __init__(self, name: str, args: KarpenterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, karpenter_problems(args))
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
        """Create the nodes' role, its policies, and the access entry that lets nodes join."""
        role = Role(
            f"{name}-node-role",
            name=scope.node_role,
            description=f"Nodes that Karpenter starts in the cluster {scope.cluster}",
            assume_role_policy=as_text(node_trust(scope)),
            opts=self._child(),
        )
        attached = attached_policies(f"{name}-node-role", role, scope.partition, NODE_POLICIES, self._child())
        # Without the access entry, instances start and are billed, but never join.
        entry = AccessEntry(
            f"{name}-node-access",
            cluster_name=scope.cluster,
            principal_arn=role.arn,
            type="EC2_LINUX",
            opts=self._child(*args.needs),
        )
        return [role, *attached, entry]

    def _controller_identity(self, name: str, args: KarpenterArgs, scope: Scope) -> list[pulumi.Resource]:
        """Create the controller's role, its policies, and the association with its pods."""
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
        """Create the queue, its policy, and the rules that send events to it."""
        queue = Queue(
            f"{name}-interruption",
            name=scope.cluster,
            # Seconds, as in Karpenter's template: an older warning concerns an instance that no longer exists.
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
        """Create the account's service-linked role for spot instances. Other clusters depend on it, so it is retained
        on deletion."""
        role = ServiceLinkedRole(
            f"{name}-spot-role", aws_service_name="spot.amazonaws.com", opts=self._child(retain_on_delete=True)
        )
        return [role]

    def _crds(self, name: str, args: KarpenterArgs) -> Release:
        """Create a separate release for the CRDs. Helm installs CRDs inside the controller's chart once and never
        updates them."""
        chart = karpenter_chart("karpenter-crd", args)
        return chart.release(
            f"{name}-crd",
            release="karpenter-crd",
            namespace=args.namespace,
            timeout=300,
            opts=self._child(*args.needs),
        )

    def _controller(self, name: str, args: KarpenterArgs, needs: Sequence[pulumi.Resource]) -> Release:
        """Create the controller's release. It is deleted first, while its permissions to clean up still exist."""
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


def karpenter_problems(args: KarpenterArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    yield from cluster_name_problems(args.cluster_name)
    if "featureGates" in args.values.get("settings", {}):
        message = "is not allowed here; use the argument feature_gates, so that node pools know the gates"
        yield Problem(("values", "settings", "featureGates"), "value-of-an-argument", message)


def scope_of(args: KarpenterArgs) -> Scope:
    return Scope(cluster=args.cluster_name, region=args.region, account=args.account_id, partition=args.partition)


def karpenter_chart(name: str, args: KarpenterArgs) -> Chart:
    return Chart(name=name, registry=KARPENTER_REGISTRY, version=args.version, mirror=args.chart_mirror)


def controller_trust(args: KarpenterArgs) -> pulumi.Input[str]:
    """Return the trust policy of the controller's role."""
    if isinstance(args.identity, PodIdentity):
        return as_text(pod_identity_trust())
    namespace, account = args.namespace, args.service_account
    provider = pulumi.Output.all(args.identity.provider_arn, args.identity.provider_url)
    return provider.apply(lambda known: as_text(web_identity_trust(known[0], known[1], namespace, account)))


def controller_values(args: KarpenterArgs) -> dict[str, Any]:
    """Return the chart values of the controller."""
    amounts = {"cpu": args.cpu, "memory": args.memory}
    values: dict[str, Any] = {
        "replicas": args.replicas,
        "serviceAccount": service_account(args),
        # This list replaces the chart's, so it includes the chart's own toleration.
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            *(dict(toleration) for toleration in args.tolerations),
        ],
        # CPU also has a limit, as in Karpenter's own instructions (scripts/step08-apply-helm-chart.sh at v1.14.1).
        "controller": {"resources": {"requests": amounts, "limits": amounts}},
        "settings": {
            "clusterName": args.cluster_name,
            "clusterEndpoint": args.cluster_endpoint,
            "interruptionQueue": args.cluster_name if args.interruption_queue else "",
            "featureGates": feature_gate_values(args.feature_gates),
        },
    }
    if args.isolated:
        values["settings"]["isolatedVPC"] = True
    if args.service_monitor:
        values["serviceMonitor"] = {"enabled": True, "additionalLabels": dict(args.service_monitor.labels)}
    return laid_over(values, args.values)


def service_account(args: KarpenterArgs) -> dict[str, Any]:
    """Return the chart value `serviceAccount`. Pod Identity needs no annotation, because the association names the
    account."""
    account: dict[str, Any] = {"create": True, "name": args.service_account}
    if isinstance(args.identity, Irsa):
        scope = scope_of(args)
        account["annotations"] = {"eks.amazonaws.com/role-arn": scope.iam_arn(f"role/{scope.controller_role}")}
    return account


def feature_gate_values(gates: FeatureGates) -> dict[str, bool]:
    """Return the chart value `settings.featureGates`, with every gate of the chart."""
    return {
        "nodeOverlay": gates.node_overlay,
        "nodeRepair": gates.node_repair,
        "reservedCapacity": gates.reserved_capacity,
        "spotToSpotConsolidation": gates.spot_to_spot_consolidation,
        "staticCapacity": gates.static_capacity,
        "capacityBuffer": gates.capacity_buffer,
    }
