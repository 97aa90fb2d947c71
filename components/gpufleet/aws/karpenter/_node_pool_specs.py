"""Specs of a node pool's NodePool, EC2NodeClass and NodeOverlays."""

from __future__ import annotations

from typing import Any

from gpufleet.aws.efa.interfaces import network_interfaces
from gpufleet.aws.karpenter.bottlerocket import is_bottlerocket
from gpufleet.aws.karpenter.bottlerocket import user_data as bottlerocket_user_data
from gpufleet.aws.karpenter.node_disk import root_volume, user_data
from gpufleet.aws.karpenter.node_pool_args import (
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
from gpufleet.aws.karpenter.node_pool_fit import gpu_counts
from gpufleet.nvidia.sharing import GPU, allocatable
from gpufleet.taint import Taint

COMPARED = ("In", "Gt", "Lt", "Gte", "Lte")


def node_pool_spec(args: KarpenterNodePoolArgs) -> Manifest:
    """Return the spec of the NodePool."""
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
    """Return the spec of the EC2NodeClass."""
    node_class = args.node_class
    return {
        "amiSelectorTerms": [ami_term(term) for term in node_class.ami_terms],
        "subnetSelectorTerms": [stated(tags=dict(term.tags), id=term.id) for term in node_class.subnet_terms],
        "securityGroupSelectorTerms": [
            stated(tags=dict(term.tags), id=term.id, name=term.name) for term in node_class.security_group_terms
        ],
        "blockDeviceMappings": [{"deviceName": root_device(node_class), "ebs": root_volume(node_class)}],
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
            networkInterfaces=network_interfaces(efas) if (efas := node_class.efa_only_interfaces) else None,
            placementGroupSelector=stated(name=group.name, id=group.id)
            if (group := node_class.placement_group)
            else None,
            kubelet=_kubelet(node_class.kubelet),
            userData=bottlerocket_user_data(args) if is_bottlerocket(node_class) else user_data(node_class),
            tags=dict(node_class.tags),
        ),
    }


def node_overlay_specs(args: KarpenterNodePoolArgs) -> dict[int, Manifest]:
    """Return the specs of the NodeOverlays by GPU count; empty without GPU sharing."""
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
    """Return the name of the NodeOverlay for a GPU count."""
    return f"{args.pool}-{count}-gpus"


def root_device(node_class: NodeClass) -> str:
    """Return the device that holds the pods' files; Bottlerocket keeps its system on a separate one."""
    families = [term.alias.partition("@")[0] for term in node_class.ami_terms if term.alias]
    bottlerocket = node_class.ami_family == "Bottlerocket" or "bottlerocket" in families
    return "/dev/xvdb" if bottlerocket else "/dev/xvda"


def stated(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value. An empty text is kept, so that it is validated; an empty list is dropped."""
    return {name: value for name, value in fields.items() if value is not None and value != [] and value != {}}


def _requirement(requirement: Requirement) -> Manifest:
    return {
        "key": requirement.key,
        "operator": requirement.operator,
        # The API server names the problem if the list of `In` is empty; if it is missing, its rule itself fails.
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
