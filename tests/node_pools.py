"""Node pools that tests start from, and one table of args that are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpufleet import Taint
from gpufleet.aws import (
    AmiTerm,
    CapacityReservationTerm,
    Disruption,
    DisruptionBudget,
    KarpenterNodePoolArgs,
    Kubelet,
    NodeClass,
    PlacementGroup,
    Requirement,
    SecurityGroupTerm,
    SubnetTerm,
)
from gpufleet.aws.karpenter._node_pool_specs import node_class_spec, node_overlay_specs, node_pool_spec, overlay_name
from gpufleet.aws.karpenter.node_pool_args import NODE_CLASS_API, NODE_OVERLAY_API, NODE_POOL_API
from gpufleet.nvidia import TimeSlicing

AWS = "karpenter.k8s.aws"
DISCOVERY = {"karpenter.sh/discovery": "cluster"}


def node_class(name: str, **changed: Any) -> NodeClass:
    """Machines that nothing is wrong with, but for what is given."""
    given: dict[str, Any] = {
        "name": name,
        "role": "nodes",
        "ami_terms": [AmiTerm(alias="al2023@v20250501")],
        "subnet_terms": [SubnetTerm(tags=DISCOVERY)],
        "security_group_terms": [SecurityGroupTerm(tags=DISCOVERY)],
    }
    return NodeClass(**given | changed)


def isin(key: str, *values: str) -> Requirement:
    return Requirement(key=key, operator="In", values=values)


DOCUMENT_004 = {
    "default": KarpenterNodePoolArgs(
        pool="default",
        node_class=node_class("default"),
        requirements=[
            isin(f"{AWS}/instance-category", "c", "m", "r"),
            isin(f"{AWS}/instance-cpu", "4", "8", "16", "32"),
            isin(f"{AWS}/instance-hypervisor", "nitro"),
            Requirement(key=f"{AWS}/instance-generation", operator="Gt", values=["2"]),
        ],
        limits={"cpu": "1000"},
    ),
    "nvdia-gpu": KarpenterNodePoolArgs(
        pool="nvidia-gpu",
        node_class=node_class("gpu"),
        requirements=[
            isin(f"{AWS}/instance-category", "g"),
            isin(f"{AWS}/instance-family", "g4dn", "g5"),
            isin(f"{AWS}/instance-size", "2xlarge", "4xlarge", "8xlarge"),
            isin("kubernetes.io/arch", "amd64"),
            isin("karpenter.sh/capacity-type", "on-demand", "spot"),
            isin(f"{AWS}/instance-hypervisor", "nitro"),
        ],
        labels={"nvidia.com/gpu.present": "true"},
        taints=[Taint(key="nvidia.com/gpu")],
        limits={"cpu": "80", "memory": "128Gi", "nvidia.com/gpu": "100"},
        termination_grace_period="6h",
        sharing=TimeSlicing(replicas=10),
    ),
}
"""Document 004's pools, by the document's names for them."""

CPU, GPU = DOCUMENT_004.values()


def changed(**fields: Any) -> KarpenterNodePoolArgs:
    """The pool without GPUs, changed; fields of the node class have the prefix `class_`."""
    of_class = {name.removeprefix("class_"): value for name, value in fields.items() if name.startswith("class_")}
    of_pool = {name: value for name, value in fields.items() if not name.startswith("class_")}
    return dataclasses.replace(CPU, **of_pool, node_class=dataclasses.replace(CPU.node_class, **of_class))


def requiring(key: str = f"{AWS}/instance-cpu", operator: Any = "In", **fields: Any) -> KarpenterNodePoolArgs:
    return changed(requirements=[Requirement(key=key, operator=operator, **fields)], gpu_counts=())


def budgeted(nodes: Any = "1", **fields: Any) -> KarpenterNodePoolArgs:
    return changed(disruption=Disruption(budgets=[DisruptionBudget(nodes=nodes, **fields)]))


def gpu(**fields: Any) -> KarpenterNodePoolArgs:
    return dataclasses.replace(GPU, **fields)


ALIAS = AmiTerm(alias="al2023@v20250501")
IMAGE = AmiTerm(id="ami-0123456789abcdef0")

VALID: dict[str, KarpenterNodePoolArgs] = {
    "document 004, CPU": CPU,
    "document 004, GPU": GPU,
    "no requirement": changed(requirements=[], gpu_counts=()),
    "every operator": changed(
        requirements=[
            Requirement(key=f"{AWS}/instance-family", operator="In", values=["c7gd", "m7gd"], min_values=2),
            Requirement(key=f"{AWS}/instance-size", operator="NotIn", values=["metal"]),
            Requirement(key=f"{AWS}/instance-local-nvme", operator="Exists"),
            Requirement(key=f"{AWS}/instance-gpu-count", operator="DoesNotExist"),
            Requirement(key=f"{AWS}/instance-memory", operator="Gt", values=["0"]),
            Requirement(key=f"{AWS}/instance-memory", operator="Lt", values=["524288"]),
            Requirement(key=f"{AWS}/instance-cpu", operator="Gte", values=["4"]),
            Requirement(key=f"{AWS}/instance-cpu", operator="Lte", values=["64"]),
        ]
    ),
    "every field of the pool": gpu(
        startup_taints=[Taint(key="example.com/starting", value="yes", effect="NoExecute")],
        weight=100,
        expire_after="Never",
        termination_grace_period="1h30m15s",
        gpu_counts=[1, 4, 8],
        disruption=Disruption(
            consolidation_policy="Balanced",
            consolidate_after="Never",
            budgets=[
                DisruptionBudget(nodes="100%"),
                DisruptionBudget(nodes="0", reasons=["Drifted", "Empty"], schedule="0 8 * * 1-5", duration="9h30m"),
                DisruptionBudget(nodes="5%", schedule="@daily", duration="90m"),
            ],
        ),
    ),
    "every field of the node class": changed(
        class_role=None,
        class_instance_profile="nodes",
        class_ami_family="AL2023",
        class_root_volume_size="1Ti",
        class_root_volume_iops=4000,
        class_root_volume_throughput=1000,
        class_root_volume_key="alias/nodes",
        class_ami_terms=[AmiTerm(alias="al2023@v20260512")],
        class_fast_image_pull=True,
        class_instance_store_policy="RAID0",
        class_metadata_hop_limit=2,
        class_capacity_reservation_terms=[
            CapacityReservationTerm(id="cr-0123456789abcdef0"),
            CapacityReservationTerm(tags={"for": "ci"}, owner_id="123456789012", match_criteria="targeted"),
        ],
        class_kubelet=Kubelet(
            max_pods=29,
            pods_per_core=4,
            kube_reserved={"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "100"},
            system_reserved={"cpu": "0"},
            eviction_hard={"memory.available": "5%", "nodefs.available": "10Gi"},
            image_gc_high_threshold_percent=85,
            image_gc_low_threshold_percent=80,
        ),
        class_user_data="#!/bin/sh\n",
        class_placement_group=PlacementGroup(name="ci"),
        class_tags={"owner": "ci"},
    ),
    "EFA-only interfaces in a placement group": gpu(
        requirements=[isin("node.kubernetes.io/instance-type", "p5.48xlarge")],
        limits={"nvidia.com/gpu": "160"},
        node_class=node_class(
            "gpu", efa_only_interfaces=32, placement_group=PlacementGroup(name="lab-gpu", strategy="cluster")
        ),
    ),
    "Bottlerocket": changed(class_ami_terms=[AmiTerm(alias="bottlerocket@v1.40.0")], class_image_snapshot="snap-01"),
    "an image by id": changed(class_ami_terms=[IMAGE], class_ami_family="Custom"),
    "images by name and owner, or by tags": changed(
        class_ami_terms=[AmiTerm(name="ci-*", owner="123456789012"), AmiTerm(tags={"for": "ci"})],
        class_ami_family="AL2023",
    ),
    "types newer than the table, by their GPU counts": gpu(
        requirements=[isin(f"{AWS}/instance-family", "g99")], gpu_counts=[1]
    ),
    "a pool of any type that is taken as one without GPUs": changed(requirements=[], gpu_counts=[]),
    "a pool that is paused": changed(limits={"cpu": "0"}),
    "the smallest limits": gpu(
        limits={"cpu": "8", "memory": "30310Mi", "nvidia.com/gpu": "10"},
        requirements=[isin("node.kubernetes.io/instance-type", "g4dn.2xlarge")],
    ),
    "zones where one of its types is at least": gpu(zones=["us-east-1e", "us-east-1a"]),
    "a zone that the table does not know": gpu(zones=["us-west-2-lax-1a"]),
    "reserved capacity": changed(
        requirements=[isin("karpenter.sh/capacity-type", "reserved"), isin(f"{AWS}/instance-category", "m")],
        class_capacity_reservation_terms=[CapacityReservationTerm(tags={"for": "ci"})],
    ),
    "an image by SSM": changed(
        class_ami_terms=[AmiTerm(ssm_parameter="/aws/service/image")], class_ami_family="AL2023"
    ),
    "places by id and name": changed(
        class_subnet_terms=[SubnetTerm(id="subnet-01"), SubnetTerm(tags={"zone": "*"})],
        class_security_group_terms=[SecurityGroupTerm(id="sg-01"), SecurityGroupTerm(name="nodes")],
    ),
}
"""Nothing is wrong with these."""

CRD_REFUSES: dict[str, tuple[KarpenterNodePoolArgs, str, str]] = {
    "operator": (requiring(operator="Equals", values=["4"]), "'Equals' is not an operator", "Unsupported value"),
    "In without values": (requiring(), "In requires at least one value", "'In' must have a value"),
    "Gt without values": (
        requiring(operator="Gt"),
        "Gt requires exactly one whole number as text, but has []",
        "single positive integer",
    ),
    "Gt with two values": (requiring(operator="Gt", values=["1", "2"]), "exactly one", "single positive integer"),
    "Lt of a negative number": (requiring(operator="Lt", values=["-1"]), "exactly one", "single positive integer"),
    "Gte of a word": (requiring(operator="Gte", values=["many"]), "exactly one", "single positive integer"),
    "Lte of a fraction": (requiring(operator="Lte", values=["1.5"]), "exactly one", "single positive integer"),
    "more min values than values": (
        requiring(values=["4"], min_values=2),
        "has 1 values, fewer than the minimum of 2",
        "'minValues'",
    ),
    "min values 0": (requiring(values=["4"], min_values=0), "0 is not between 1 and 50", "greater than or equal to 1"),
    "min values 51": (
        requiring(operator="Exists", min_values=51),
        "51 is not between 1 and 50",
        "less than or equal to 50",
    ),
    "a number for a value": (requiring(values=[4]), "4 is not text", "expected string"),
    "101 requirements": (
        changed(requirements=[isin(f"example.com/{number}", "yes") for number in range(101)], gpu_counts=()),
        "at most 100",
        "at most 100",
    ),
    "requirement of the pool's own label": (
        requiring("karpenter.sh/nodepool", values=["gpu"]),
        "karpenter.sh/nodepool is reserved by Karpenter",
        'label "karpenter.sh/nodepool" is restricted',
    ),
    "requirement of the host's name": (
        requiring("kubernetes.io/hostname", values=["one"]),
        "kubernetes.io/hostname is reserved by Karpenter",
        'label "kubernetes.io/hostname" is restricted',
    ),
    "requirement of Karpenter's domain": (
        requiring("karpenter.sh/initialized", values=["true"]),
        "karpenter.sh/initialized is reserved by Karpenter",
        'domain "karpenter.sh" is restricted',
    ),
    "requirement of a domain that ends like Karpenter's": (
        requiring("node.karpenter.sh/any", values=["true"]),
        "node.karpenter.sh/any is reserved by Karpenter",
        'domain "karpenter.sh" is restricted',
    ),
    "requirement of a label that AWS' types have not": (
        requiring(f"{AWS}/instance-gpus", values=["1"]),
        "instance-gpus is reserved by Karpenter",
        'domain "karpenter.k8s.aws" is restricted',
    ),
    "requirement without key": (requiring("", values=["1"]), "'' is not a valid label key", "requirements[0].key"),
    "requirement with an illegal key": (
        requiring("a b", values=["1"]),
        "'a b' is not a valid label key",
        "should match",
    ),
    "requirement with a key too long": (requiring("a" * 317, values=["1"]), "not a valid label key", "316 bytes"),
    "label of the host's name": (
        changed(labels={"kubernetes.io/hostname": "one"}),
        "reserved by Karpenter",
        "restricted",
    ),
    "label of the pool": (changed(labels={"karpenter.sh/nodepool": "one"}), "reserved by Karpenter", "restricted"),
    "label of Karpenter's domain": (
        changed(labels={"karpenter.sh/registered": "1"}),
        "reserved by Karpenter",
        "restricted",
    ),
    "label that AWS' types have not": (changed(labels={f"{AWS}/gpus": "1"}), "reserved by Karpenter", "restricted"),
    "label with an illegal value": (changed(labels={"a": "b c"}), "'b c' is not a valid label value", "should match"),
    "label too long": (changed(labels={"a": "b" * 64}), "not a valid label value", "63 bytes"),
    "label that is a number": (changed(labels={"a": 1}), "1 is not text", "expected string"),
    "101 labels": (changed(labels={f"l{number}": "" for number in range(101)}), "at most 100", "at most 100"),
    "taint's effect": (
        changed(taints=[Taint(key="a", effect="NoEntry")]),  # type: ignore[arg-type]
        "'NoEntry' is not an effect",
        "Unsupported value",
    ),
    "taint without key": (changed(taints=[Taint(key="")]), "not a valid taint key", "taints[0].key"),
    "taint with an illegal key": (changed(taints=[Taint(key="a b")]), "not a valid taint key", "should match"),
    "taint with an illegal value": (
        changed(taints=[Taint(key="a", value="b c")]),
        "'b c' is not a valid taint value",
        "should match",
    ),
    "taint with an empty value": (
        changed(taints=[Taint(key="a", value="")]),
        "'' is not a valid taint value",
        "should match",
    ),
    "startup taint's effect": (
        changed(startup_taints=[Taint(key="a", effect="noschedule")]),  # type: ignore[arg-type]
        "startup_taints[0].effect: 'noschedule' is not an effect",
        "Unsupported value",
    ),
    "weight 0": (changed(weight=0), "weight: 0", "greater than or equal to 1"),
    "weight 101": (changed(weight=101), "weight: 101", "less than or equal to 100"),
    "limit that is a word": (changed(limits={"cpu": "many"}), "'many' is not a Kubernetes quantity", "should match"),
    "limit with a unit of no quantity": (changed(limits={"memory": "128GiB"}), "'128GiB'", "should match"),
    "consolidation policy": (
        changed(disruption=Disruption(consolidation_policy="Always")),  # type: ignore[arg-type]
        "'Always' is not a policy",
        "Unsupported value",
    ),
    "consolidate after days": (changed(disruption=Disruption(consolidate_after="1d")), "'1d'", "should match"),
    "consolidate after nothing": (changed(disruption=Disruption(consolidate_after="")), "''", "should match"),
    "51 budgets": (
        changed(disruption=Disruption(budgets=[DisruptionBudget(nodes="1")] * 51)),
        "has 51 entries",
        "at most 50",
    ),
    "budget of 101%": (budgeted("101%"), "'101%' is not a number", "should match"),
    "budget of fewer than none": (budgeted("-1"), "'-1' is not a number", "should match"),
    "budget that is a number": (budgeted(1), "1 is not a number", "expected string"),
    "budget for an unknown reason": (
        budgeted(reasons=["Expired"]),
        "'Expired' is not a disruption reason",
        "Unsupported value",
    ),
    "schedule without duration": (
        budgeted(schedule="@daily"),
        "has a schedule but no duration",
        "'schedule' must be set",
    ),
    "duration without schedule": (budgeted(duration="8h"), "has a duration but no schedule", "'schedule' must be set"),
    "schedule of four fields": (
        budgeted(schedule="0 8 * *", duration="8h"),
        "'0 8 * *' is not a cron schedule",
        "should match",
    ),
    "schedule without meaning": (
        budgeted(schedule="@often", duration="8h"),
        "'@often' is not a cron schedule",
        "should match",
    ),
    "duration in seconds": (budgeted(schedule="@daily", duration="30s"), "'30s' is not a duration", "should match"),
    "duration for ever": (budgeted(schedule="@daily", duration="Never"), "'Never' is not a duration", "should match"),
    "grace that never ends": (changed(termination_grace_period="Never"), "'Never'", "should match"),
    "grace in days": (changed(termination_grace_period="1d"), "'1d'", "should match"),
    "expiry in days": (changed(expire_after="30d"), "'30d'", "should match"),
    "expiry without unit": (changed(expire_after="720"), "'720'", "should match"),
    "no image": (changed(class_ami_terms=[]), "ami_terms: has 0 entries", "at least 1 items"),
    "31 images": (
        changed(class_ami_terms=[IMAGE] * 31, class_ami_family="AL2023"),
        "ami_terms: has 31 entries",
        "at most 30",
    ),
    "alias beside another term": (
        changed(class_ami_terms=[ALIAS, IMAGE]),
        "has the alias al2023@v20250501 and 1 other",
        "'alias' is mutually exclusive",
    ),
    "two aliases": (changed(class_ami_terms=[ALIAS, ALIAS]), "and 1 other terms", "'alias' is mutually exclusive"),
    "alias with an id": (
        changed(class_ami_terms=[AmiTerm(alias="al2023@v20250501", id="ami-01")]),
        "has alias and id",
        "mutually exclusive",
    ),
    "alias with an owner": (
        changed(class_ami_terms=[AmiTerm(alias="al2023@v20250501", owner="self")]),
        "has alias and owner",
        "mutually exclusive",
    ),
    "id with a name": (
        changed(class_ami_terms=[AmiTerm(id="ami-01", name="ci-*")], class_ami_family="AL2023"),
        "has id and name",
        "'id' is mutually exclusive",
    ),
    "image by nothing": (
        changed(class_ami_terms=[AmiTerm(owner="self")], class_ami_family="AL2023"),
        "selects nothing",
        "expected at least one",
    ),
    "image by an empty tag": (
        changed(class_ami_terms=[AmiTerm(tags={"for": ""})], class_ami_family="AL2023"),
        "empty key or value",
        "empty tag keys or values",
    ),
    "image by 21 tags": (
        changed(class_ami_terms=[AmiTerm(tags={f"t{n}": "1" for n in range(21)})], class_ami_family="AL2023"),
        "21 tags",
        "at most 20",
    ),
    "image's id": (
        changed(class_ami_terms=[AmiTerm(id="image-01")], class_ami_family="AL2023"),
        "'image-01' is not a valid ID",
        "should match",
    ),
    "alias without version": (
        changed(class_ami_terms=[AmiTerm(alias="al2023")]),
        "'al2023' is not an alias; write family@version",
        "format",
    ),
    "alias with an empty version": (changed(class_ami_terms=[AmiTerm(alias="al2023@")]), "family@version", "format"),
    "alias of an unknown family": (
        changed(class_ami_terms=[AmiTerm(alias="ubuntu@v1")]),
        "'ubuntu' is not an AMI family",
        "family is not supported",
    ),
    "alias in capitals": (
        changed(class_ami_terms=[AmiTerm(alias="AL2023@v1")]),
        "'AL2023' is not an AMI family",
        "not supported",
    ),
    "alias too long": (changed(class_ami_terms=[AmiTerm(alias="al2023@v" + "1" * 30)]), "30 characters", "30 bytes"),
    "alias of Windows with a version": (
        changed(class_ami_terms=[AmiTerm(alias="windows2022@v1")]),
        "cannot be pinned",
        "windows families may only specify",
    ),
    "alias of another family": (
        changed(class_ami_family="Bottlerocket"),
        "ami_family: 'Bottlerocket'",
        "must be 'AL2023' or",
    ),
    "family": (changed(class_ami_family="Ubuntu"), "ami_family: 'Ubuntu'", "Unsupported value"),
    "neither alias nor family": (changed(class_ami_terms=[IMAGE]), "ami_family: is missing", "must specify amiFamily"),
    "role and instance profile": (
        changed(class_instance_profile="nodes"),
        "is set together with role",
        "exactly one of ['role', 'instanceProfile']",
    ),
    "neither role nor instance profile": (
        changed(class_role=None),
        "is missing, as is the instance profile",
        "exactly one of",
    ),
    "an empty role": (changed(class_role=""), "role: is empty", "role cannot be empty"),
    "an empty instance profile": (
        changed(class_role=None, class_instance_profile=""),
        "instance_profile: is empty",
        "instanceProfile cannot be empty",
    ),
    "no subnet": (changed(class_subnet_terms=[]), "subnet_terms: has 0 entries", "cannot be empty"),
    "subnet by nothing": (changed(class_subnet_terms=[SubnetTerm()]), "has no key", "expected at least one"),
    "subnet by id and tags": (
        changed(class_subnet_terms=[SubnetTerm(id="subnet-01", tags=DISCOVERY)]),
        "has id and tags",
        "mutually exclusive",
    ),
    "subnet's id": (
        changed(class_subnet_terms=[SubnetTerm(id="net-01")]),
        "'net-01' is not a valid ID",
        "should match",
    ),
    "subnet by an empty tag": (changed(class_subnet_terms=[SubnetTerm(tags={"a": ""})]), "empty key", "empty tag"),
    "31 subnets": (
        changed(class_subnet_terms=[SubnetTerm(tags=DISCOVERY)] * 31),
        "subnet_terms: has 31 entries",
        "at most 30",
    ),
    "no security group": (changed(class_security_group_terms=[]), "group_terms: has 0 entries", "cannot be empty"),
    "security group by nothing": (
        changed(class_security_group_terms=[SecurityGroupTerm()]),
        "has no key",
        "expected at least one",
    ),
    "security group by id and name": (
        changed(class_security_group_terms=[SecurityGroupTerm(id="sg-01", name="nodes")]),
        "has id and name",
        "mutually exclusive",
    ),
    "security group by name and tags": (
        changed(class_security_group_terms=[SecurityGroupTerm(name="nodes", tags=DISCOVERY)]),
        "has name and tags",
        "mutually exclusive",
    ),
    "security group's id": (
        changed(class_security_group_terms=[SecurityGroupTerm(id="group-01")]),
        "'group-01' is not a valid ID",
        "should match",
    ),
    "reservation by nothing": (
        changed(class_capacity_reservation_terms=[CapacityReservationTerm(owner_id="123456789012")]),
        "selects nothing",
        "expected at least one",
    ),
    "reservation by id and tags": (
        changed(class_capacity_reservation_terms=[CapacityReservationTerm(id="cr-01", tags=DISCOVERY)]),
        "has id and tags",
        "mutually exclusive",
    ),
    "reservation's id": (
        changed(class_capacity_reservation_terms=[CapacityReservationTerm(id="01")]),
        "'01' is not a valid ID",
        "should match",
    ),
    "reservation's owner": (
        changed(class_capacity_reservation_terms=[CapacityReservationTerm(tags=DISCOVERY, owner_id="1")]),
        "'1' is not an account ID",
        "should match",
    ),
    "reservation's criteria": (
        changed(class_capacity_reservation_terms=[CapacityReservationTerm(match_criteria="any")]),  # type: ignore[arg-type]
        "'any' is not valid",
        "Unsupported value",
    ),
    "31 reservations": (
        changed(class_capacity_reservation_terms=[CapacityReservationTerm(id="cr-01")] * 31),
        "has 31 entries",
        "at most 30",
    ),
    "volume without unit": (changed(class_root_volume_size="200"), "'200'", "should match"),
    "volume in bytes": (changed(class_root_volume_size="200GB"), "'200GB'", "should match"),
    "volume of a fraction": (changed(class_root_volume_size="1.5Ti"), "'1.5Ti'", "should match"),
    "volume too large": (changed(class_root_volume_size="65T"), "'65T'", "should match"),
    "volume of nothing": (changed(class_root_volume_size="0Gi"), "'0Gi'", "should match"),
    "hop limit 0": (changed(class_metadata_hop_limit=0), "hop_limit: 0", "greater than or equal to 1"),
    "hop limit 65": (changed(class_metadata_hop_limit=65), "hop_limit: 65", "less than or equal to 64"),
    "instance store": (changed(class_instance_store_policy="RAID1"), "'RAID1'", "Unsupported value"),
    "tag without key": (changed(class_tags={"": "a"}), "tags.'': has an empty key", "empty tag keys"),
    "tag of EKS": (changed(class_tags={"eks:eks-cluster-name": "a"}), "eks:eks-cluster-name", "restricted tag"),
    "tag of the cluster": (changed(class_tags={"kubernetes.io/cluster/a": "owned"}), "cluster/a", "restricted tag"),
    "tag of the pool": (changed(class_tags={"karpenter.sh/nodepool": "a"}), "nodepool", "restricted tag"),
    "tag of the claim": (changed(class_tags={"karpenter.sh/nodeclaim": "a"}), "nodeclaim", "restricted tag"),
    "tag of the class": (changed(class_tags={f"{AWS}/ec2nodeclass": "a"}), "ec2nodeclass", "restricted tag"),
    "pods fewer than none": (
        changed(class_kubelet=Kubelet(max_pods=-1)),
        "max_pods: -1 is negative",
        "greater than or equal to 0",
    ),
    "pods per core": (
        changed(class_kubelet=Kubelet(pods_per_core=-1)),
        "pods_per_core: -1 is negative",
        "greater than or equal",
    ),
    "reserved for nobody": (
        changed(class_kubelet=Kubelet(kube_reserved={"gpu": "1"})),
        "'gpu' cannot be reserved",
        "valid keys for kubeReserved",
    ),
    "reserved less than nothing": (
        changed(class_kubelet=Kubelet(system_reserved={"cpu": "-1"})),
        "'-1' is not a Kubernetes quantity",
        "cannot be a negative",
    ),
    "evicted for nothing": (
        changed(class_kubelet=Kubelet(eviction_hard={"cpu.available": "5%"})),
        "'cpu.available' is not an eviction signal",
        "valid keys for evictionHard",
    ),
    "evicted at a word": (
        changed(class_kubelet=Kubelet(eviction_hard={"memory.available": "little"})),
        "'little' is not a Kubernetes quantity",
        "should match",
    ),
    "images' thresholds swapped": (
        changed(class_kubelet=Kubelet(image_gc_high_threshold_percent=80, image_gc_low_threshold_percent=85)),
        "starts at 80 % and stops at 85 %",
        "must be greater than",
    ),
    "images' threshold over 100": (
        changed(class_kubelet=Kubelet(image_gc_high_threshold_percent=101)),
        "101 is not between 0 and 100",
        "less than or equal to 100",
    ),
}
"""What the CRDs' own rules refuse: the args, what we say of them and what the API server says."""

WE_REFUSE: dict[str, tuple[KarpenterNodePoolArgs, str]] = {
    "a pool's name too long for a label": (changed(pool="a" * 64), "which nodes get as a label"),
    "a value that is no label's": (requiring(values=["a b"]), "'a b' is not a valid label value"),
    "a value too long": (requiring(values=["a" * 64]), "not a valid label value"),
    "NotIn without values": (requiring(operator="NotIn"), "NotIn requires at least one value"),
    "Exists with values": (requiring(operator="Exists", values=["a"]), "Exists takes no values, but has a"),
    "a limit that is a number": (changed(limits={"cpu": 1000}), "1000 is not text"),
    "a negative limit": (changed(limits={"cpu": "-1"}), "'-1' is not a Kubernetes quantity"),
    "an image that changes": (changed(class_ami_terms=[AmiTerm(alias="al2023@latest")]), "pin a release"),
    "Windows": (changed(class_ami_terms=[AmiTerm(alias="windows2022@latest")]), "select AMIs by ID"),
    "alias with an SSM parameter": (
        changed(class_ami_terms=[AmiTerm(alias="al2023@v20250501", ssm_parameter="/image")]),
        "has alias and ssmParameter",
    ),
    "one of two subnets by id and tags": (
        changed(class_subnet_terms=[SubnetTerm(tags=DISCOVERY), SubnetTerm(id="subnet-01", tags=DISCOVERY)]),
        "has id and tags",
    ),
    "a volume without a number": (changed(class_root_volume_size="Ti"), "root_volume_size: 'Ti'"),
    "GPUs without grace": (gpu(termination_grace_period=None), "set it to the duration of the longest job"),
    "GPUs without limit": (gpu(limits={"cpu": "80"}), "nvidia.com/gpu is missing"),
    "fewer GPUs than a node has": (gpu(limits={"nvidia.com/gpu": "9"}), "offers 10 after sharing"),
    "GPU counts below one": (gpu(gpu_counts=[0]), "gpu_counts[0]: 0"),
    "a GPU count without overlay": (
        gpu(gpu_counts=[1], requirements=[isin(f"{AWS}/instance-gpu-count", "1", "4")]),
        "lacks 4, which the requirements name",
    ),
    "AMD's GPUs with NVIDIA's image": (
        gpu(requirements=[isin(f"{AWS}/instance-family", "g4ad", "g5")]),
        "g4ad has AMD GPUs",
    ),
    "AMD's GPUs alone": (gpu(requirements=[isin(f"{AWS}/instance-family", "g4ad")]), "g4ad has AMD GPUs"),
    "a part of a GPU by family": (
        gpu(requirements=[isin(f"{AWS}/instance-family", "g6", "g6f", "gr6f")]),
        "g6f, gr6f has a fraction of a GPU",
    ),
    "a part of a GPU by type": (
        gpu(requirements=[isin("node.kubernetes.io/instance-type", "g6f.large")]),
        "g6f.large has a fraction of a GPU",
    ),
    "types with GPUs and without": (changed(requirements=[]), "a pool must have one kind"),
    "a family that is not there": (
        changed(requirements=[isin(f"{AWS}/instance-family", "m5x")]),
        "m5.12xlarge and 26 more would match with karpenter.k8s.aws/instance-family m5,",
    ),
    "a type that is not there": (
        gpu(requirements=[isin("node.kubernetes.io/instance-type", "g5.3xlarge")]),
        "would match with node.kubernetes.io/instance-type g5.xlarge,",
    ),
    "a number that no type has": (
        changed(requirements=[isin(f"{AWS}/instance-family", "m5"), isin(f"{AWS}/instance-cpu", "6")]),
        "m5.2xlarge and 2 more would match with karpenter.k8s.aws/instance-cpu 2, 4, 8;",
    ),
    "a label that no such type has": (
        changed(
            requirements=[
                isin("node.kubernetes.io/instance-type", "m5.large"),
                Requirement(key=f"{AWS}/instance-local-nvme", operator="Exists"),
            ]
        ),
        "m5.large would match without karpenter.k8s.aws/instance-local-nvme or",
    ),
    "requirements of which several are wrong": (
        changed(requirements=[isin(f"{AWS}/instance-family", "m99"), isin("kubernetes.io/arch", "x86_64")]),
        "removing one of them would not help",
    ),
    "a node's label that no such type has": (
        changed(labels={"kubernetes.io/arch": "riscv64"}),
        "would match with kubernetes.io/arch",
    ),
    "reserved capacity without a reservation": (
        changed(requirements=[isin("karpenter.sh/capacity-type", "reserved"), isin(f"{AWS}/instance-category", "m")]),
        "would match with karpenter.sh/capacity-type",
    ),
    "a zone that is a region": (changed(zones=["eu-central-1"]), "zones[0]: 'eu-central-1' is not a zone"),
    "a family that is in other zones": (
        gpu(zones=["af-south-1a"], requirements=[isin(f"{AWS}/instance-family", "g4dn")]),
        "g4dn is not offered in af-south-1a, only in af-south-1b, af-south-1c;",
    ),
    "a type that is in other regions": (
        gpu(zones=["af-south-1a"], requirements=[isin("node.kubernetes.io/instance-type", "p6-b300.48xlarge")]),
        "p6-b300.48xlarge is not offered in af-south-1a, only in",
    ),
    "a category that is in other regions": (
        gpu(zones=["af-south-1a"], requirements=[isin(f"{AWS}/instance-category", "p")]),
        "no instance type that meets the requirements (p3dn.24xlarge and 8 more) is offered in",
    ),
    "fewer CPUs than a node has": (changed(limits={"cpu": "3999m"}), "the smallest type of the pool, c5.xlarge, has 4"),
    "less memory than a node has": (
        gpu(limits={"memory": "30309Mi", "nvidia.com/gpu": "10"}),
        "the smallest type of the pool, g4dn.2xlarge, has 30310Mi",
    ),
    "limits that fit one by one": (
        changed(
            requirements=[isin("node.kubernetes.io/instance-type", "c5.9xlarge", "r5.4xlarge")],
            limits={"cpu": "16", "memory": "100Gi"},
        ),
        "is within all limits",
    ),
    "more EFA interfaces than any type has": (
        gpu(
            requirements=[isin("node.kubernetes.io/instance-type", "p5en.48xlarge", "g5.2xlarge")],
            node_class=node_class("gpu", efa_only_interfaces=17),
        ),
        "no instance type of the pool has 17 EFA interfaces; p5en.48xlarge has 16",
    ),
    "network cards without EFA": (
        gpu(
            requirements=[isin("node.kubernetes.io/instance-type", "p6-b300.48xlarge")],
            node_class=node_class("gpu", efa_only_interfaces=16),
        ),
        "p6-b300.48xlarge has 17 network cards, of which 16 support EFA;",
    ),
    "a cluster placement group in two zones": (
        gpu(
            zones=["us-east-1a", "us-east-1b"],
            node_class=node_class("gpu", placement_group=PlacementGroup(name="ci", strategy="cluster")),
        ),
        "node_class.placement_group.strategy: a cluster placement group is in one zone, but the pool has us-east-1a,",
    ),
    "a strategy of an existing placement group": (
        gpu(node_class=node_class("gpu", placement_group=PlacementGroup(id="pg-1", strategy="spread"))),
        "placement_group.strategy: is not allowed with id,",
    ),
    "sharing among one": (gpu(sharing=TimeSlicing(replicas=1)), "1 is too few; at least 2"),
    "sharing under another name": (
        gpu(sharing=TimeSlicing(replicas=2, rename_by_default=True)),
        "Karpenter provisions nodes for nvidia.com/gpu only",
    ),
    "sharing what is not there": (changed(sharing=TimeSlicing(replicas=2)), "sharing: requires GPUs"),
}
"""What the API server takes, and no node or a lost job would come of."""


def objects(args: KarpenterNodePoolArgs) -> list[dict[str, Any]]:
    """What the component registers, as manifests, whether it would be refused or not."""

    def made(api_version: str, kind: str, name: str, spec: Any) -> dict[str, Any]:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}

    return [
        made(NODE_CLASS_API, "EC2NodeClass", args.node_class.name, node_class_spec(args)),
        *(
            made(NODE_OVERLAY_API, "NodeOverlay", overlay_name(args, count), spec)
            for count, spec in node_overlay_specs(args).items()
        ),
        made(NODE_POOL_API, "NodePool", args.pool, node_pool_spec(args)),
    ]
