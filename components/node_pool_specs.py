"""What the cluster is told of a node pool: the specs of its NodePool, EC2NodeClass and NodeOverlays."""

from __future__ import annotations

from typing import Any

from components.gpu_sharing import GPU, allocatable
from components.node_pool_args import (
    NODE_POOL_LABEL,
    AmiTerm,
    CapacityReservationTerm,
    DisruptionBudget,
    KarpenterNodePoolArgs,
    Kubelet,
    Manifest,
    NodeClass,
    Requirement,
)
from components.node_pool_fit import gpu_counts
from components.taint import Taint

COMPARED = ("In", "Gt", "Lt", "Gte", "Lte")


def node_pool_spec(args: KarpenterNodePoolArgs) -> Manifest:
    """Spec of the NodePool."""
    template: dict[str, Any] = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": args.node_class.name},
        "requirements": [_requirement(requirement) for requirement in args.requirements],
        "expireAfter": args.expire_after,
        **stated(
            taints=[_taint(taint) for taint in args.taints],
            startupTaints=[_taint(taint) for taint in args.startup_taints],
            terminationGracePeriod=args.termination_grace_period,
        ),
    }
    metadata = {"metadata": {"labels": dict(args.labels)}} if args.labels else {}
    return {
        "template": {**metadata, "spec": template},
        "disruption": {
            "consolidationPolicy": args.disruption.consolidation_policy,
            "consolidateAfter": args.disruption.consolidate_after,
            **stated(budgets=[_budget(budget) for budget in args.disruption.budgets]),
        },
        **stated(limits=dict(args.limits), weight=args.weight),
    }


def node_class_spec(args: KarpenterNodePoolArgs) -> Manifest:
    """Spec of the EC2NodeClass."""
    node_class = args.node_class
    volume = {"volumeSize": node_class.root_volume_size, "volumeType": "gp3", "encrypted": True}
    return {
        "amiSelectorTerms": [ami_term(term) for term in node_class.ami_terms],
        "subnetSelectorTerms": [stated(tags=dict(term.tags), id=term.id) for term in node_class.subnet_terms],
        "securityGroupSelectorTerms": [
            stated(tags=dict(term.tags), id=term.id, name=term.name) for term in node_class.security_group_terms
        ],
        "blockDeviceMappings": [
            {"deviceName": root_device(node_class), "ebs": {**volume, "deleteOnTermination": True}}
        ],
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": node_class.metadata_hop_limit,
            "httpTokens": "required",
        },
        **stated(
            role=node_class.role,
            instanceProfile=node_class.instance_profile,
            amiFamily=node_class.ami_family,
            instanceStorePolicy=node_class.instance_store_policy,
            capacityReservationSelectorTerms=[reservation(term) for term in node_class.capacity_reservation_terms],
            kubelet=_kubelet(node_class.kubelet),
            userData=node_class.user_data,
            tags=dict(node_class.tags),
        ),
    }


def node_overlay_specs(args: KarpenterNodePoolArgs) -> dict[int, Manifest]:
    """Specs of the NodeOverlays, by count of GPUs; none where GPUs are not shared."""
    if args.sharing is None:
        return {}
    return {
        count: {
            "requirements": [
                {"key": NODE_POOL_LABEL, "operator": "In", "values": [args.pool]},
                {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "In", "values": [str(count)]},
            ],
            "capacity": {GPU: str(allocatable(count, args.sharing))},
        }
        for count in gpu_counts(args)
    }


def overlay_name(args: KarpenterNodePoolArgs, count: int) -> str:
    """Name in the cluster of the NodeOverlay for that count of GPUs."""
    return f"{args.pool}-{count}-gpus"


def root_device(node_class: NodeClass) -> str:
    """The device that holds what pods write: Bottlerocket keeps its own system apart from it."""
    families = [term.alias.partition("@")[0] for term in node_class.ami_terms if term.alias]
    bottlerocket = node_class.ami_family == "Bottlerocket" or "bottlerocket" in families
    return "/dev/xvdb" if bottlerocket else "/dev/xvda"


def stated(**fields: Any) -> dict[str, Any]:
    """The fields that say something. An empty text does, if only that it is wrong; an empty list does not."""
    return {name: value for name, value in fields.items() if value is not None and value != [] and value != {}}


def _requirement(requirement: Requirement) -> Manifest:
    return {
        "key": requirement.key,
        "operator": requirement.operator,
        # `In` without values is refused by name; a list that is not there is refused as a fault of the rule itself.
        **({"values": list(requirement.values)} if requirement.values or requirement.operator in COMPARED else {}),
        **stated(minValues=requirement.min_values),
    }


def _taint(taint: Taint) -> Manifest:
    return {"key": taint.key, "effect": taint.effect, **stated(value=taint.value)}


def _budget(budget: DisruptionBudget) -> Manifest:
    optional = stated(reasons=list(budget.reasons), schedule=budget.schedule, duration=budget.duration)
    return {"nodes": budget.nodes, **optional}


def ami_term(term: AmiTerm) -> Manifest:
    return stated(
        alias=term.alias,
        id=term.id,
        name=term.name,
        owner=term.owner,
        tags=dict(term.tags),
        ssmParameter=term.ssm_parameter,
    )


def reservation(term: CapacityReservationTerm) -> Manifest:
    return stated(id=term.id, tags=dict(term.tags), ownerID=term.owner_id, instanceMatchCriteria=term.match_criteria)


def _kubelet(kubelet: Kubelet) -> Manifest:
    return stated(
        maxPods=kubelet.max_pods,
        podsPerCore=kubelet.pods_per_core,
        kubeReserved=dict(kubelet.kube_reserved),
        systemReserved=dict(kubelet.system_reserved),
        evictionHard=dict(kubelet.eviction_hard),
        imageGCHighThresholdPercent=kubelet.image_gc_high_threshold_percent,
        imageGCLowThresholdPercent=kubelet.image_gc_low_threshold_percent,
    )
