"""Capacity of pools whose nodes Karpenter provisions, from stack files to the table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.aws.karpenter.node_pool_fit import allocatable
from gpufleet.aws.karpenter.node_pool_fit import capacity as whole
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.eks_cluster import SmokeWorkload
from gpufleet_stacks.settings.models.karpenter import PoolLimits, Sharing
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.capacity import stack_capacity as capacity
from gpufleet_tools.capacity.pool_capacity import ElasticPoolCapacity
from gpufleet_tools.plan import stack
from tests.conftest import Gpufleet, MakeProject, examples
from tests.tools.diff.pull_requests import AWS, Edit

CapacityOf = Callable[..., tuple[ElasticPoolCapacity, EksSettings]]

GPU_LIMITS, CPU_LIMITS = "limits: {cpu: 80, gpus: 4}", "limits: {cpu: 64}"
LARGE = ("", "sizes: [2xlarge]", "sizes: [2xlarge, 8xlarge]")


@pytest.fixture
def capacity_of(project: MakeProject) -> CapacityOf:
    """The capacity of one pool after edits, and the settings."""

    root = project({"aws": AWS})

    def capacity_of(pool: str, *edits: Edit, overcommit: bool = False) -> tuple[ElasticPoolCapacity, EksSettings]:
        text = AWS
        for _, before, after in edits:
            assert before in text
            text = text.replace(before, after)
        (root / "Pulumi.aws.yaml").write_text(text)
        read = stack.read(root, "aws").settings
        assert isinstance(read, EksSettings)
        found = {each.pool: each for each in capacity.capacity("aws", read, [pool] if overcommit else []).pools}
        chosen = found[pool]
        assert isinstance(chosen, ElasticPoolCapacity)
        return chosen, read

    return capacity_of


def test_types_that_are_alike_hold_what_the_limits_admit(capacity_of: CapacityOf) -> None:
    gpu, _ = capacity_of("gpu")
    (label,) = gpu.labels
    assert gpu.types == ["g4dn.2xlarge", "g5.2xlarge"]
    assert (label.guaranteed, label.guaranteed_exactly, label.burst, gpu.fits, gpu.whichever) == (
        40,
        True,
        40,
        "yes",
        True,
    )
    assert (label.shares["GPU"], label.limited_by, gpu.excess) == (0.1, [], None)


def test_a_large_node_for_few_jobs_uses_the_limits_up(capacity_of: CapacityOf) -> None:
    """Of 80 cores two nodes of 32 leave 16: two of 8."""
    gpu, _ = capacity_of("gpu", LARGE)
    (label,) = gpu.labels
    assert (label.guaranteed, label.burst, gpu.fits, gpu.whichever) == (40, 40, "yes", True)
    tighter, _ = capacity_of("gpu", LARGE, ("", GPU_LIMITS, "limits: {cpu: 39, gpus: 4}"))
    (label,) = tighter.labels
    assert (label.guaranteed, label.burst, tighter.fits) == (10, 40, "yes")
    assert not tighter.whichever


def test_what_is_guaranteed_alone_is_the_worst_sequence_of_types(capacity_of: CapacityOf) -> None:
    """The same by trying every sequence of purchases, with Karpenter's figures."""
    edits = (("", "sizes: [2xlarge]", "sizes: [2xlarge, 4xlarge, 8xlarge]"), ("", "cpu: 500m", "cpu: 3"))
    gpu, read = capacity_of("gpu", *edits, ("", GPU_LIMITS, "limits: {cpu: 50, memory: 200Gi, gpus: 4}"))
    args = node_pool_args("gpu", read.cluster)
    types = [instance_types()[name] for name in gpu.types]
    limits = {"cpu": Decimal(50), "memory": Decimal(200 * 1024**3), "nvidia.com/gpu": Decimal(40)}

    def jobs(name: str) -> int:
        room = allocatable(instance_types()[name], args.node_class, args.sharing)
        by_cpu = (room["cpu"] - daemon_requests(read, "gpu")["cpu"]) // 3
        by_memory, by_disk = room["memory"] // (2 * 1024**3), room["ephemeral-storage"] // (15 * 1024**3)
        return int(min(by_cpu, by_memory, by_disk, room["nvidia.com/gpu"]))

    def admitted(provisioned: tuple[str, ...]) -> bool:
        costs = [whole(instance_types()[name], args.node_class, args.sharing) for name in provisioned]
        return all(sum((cost[key] for cost in costs), Decimal(0)) <= limit for key, limit in limits.items())

    sets = [
        provisioned
        for size in range(5)
        for provisioned in itertools.combinations_with_replacement([each.name for each in types], size)
        if admitted(provisioned)
    ]
    ends = [provisioned for provisioned in sets if not any(admitted((*provisioned, each.name)) for each in types)]
    (label,) = gpu.labels
    assert label.guaranteed == min(sum(map(jobs, provisioned)) for provisioned in ends)
    assert label.burst == max(sum(map(jobs, provisioned)) for provisioned in sets)
    assert label.guaranteed < label.burst < label.max


def test_limits_below_the_maxima_are_said(capacity_of: CapacityOf) -> None:
    edit = ("", GPU_LIMITS, "limits: {cpu: 80, gpus: 3}")
    gpu, _ = capacity_of("gpu", edit)
    assert gpu.fits == "no"
    assert gpu.excess == (
        "all labels at their max do not fit within its limits (80 cores, 3 GPUs) on any instance type: some jobs"
        " queue although their label is below its max; lower a max, raise a limit, or write 'overcommit: allowed'"
    )
    assert capacity_of("gpu", edit, overcommit=True)[0].excess is None


RESERVED = """\
        capacity: [reserved]
        reservations:
          - {id: cr-0123456789abcdef0, holds: {instanceType: g5.2xlarge, zone: us-east-1a, instances: 2}}
          - {id: cr-0123456789abcdef1, holds: {instanceType: g4dn.2xlarge, zone: us-east-1b, instances: 1}}
"""
SHARED = "        sharing: {timeSlicing: {replicas: 10}}\n"


def test_no_more_than_what_is_reserved_is_had_where_nothing_else_is_bought(capacity_of: CapacityOf) -> None:
    gpu, _ = capacity_of("gpu", ("", SHARED, RESERVED + SHARED))
    (label,) = gpu.labels
    assert gpu.types == ["g4dn.2xlarge", "g5.2xlarge"]
    assert (label.guaranteed, label.burst, gpu.fits) == (30, 30, "no")
    one, _ = capacity_of("gpu", ("", SHARED, RESERVED.replace("instances: 2", "instances: 1") + SHARED))
    assert one.labels[0].guaranteed == 20


def test_types_that_are_not_reserved_are_not_had(capacity_of: CapacityOf) -> None:
    only = RESERVED.rsplit("          - ", 1)[0]
    assert capacity_of("gpu", ("", SHARED, only + SHARED))[0].types == ["g5.2xlarge"]
    mixed = only.replace("[reserved]", "[reserved, on-demand]")
    gpu, _ = capacity_of("gpu", ("", SHARED, mixed + SHARED))
    assert (gpu.types, gpu.labels[0].guaranteed) == (["g4dn.2xlarge", "g5.2xlarge"], 40)


NEWER = ("", "families: [g4dn, g5], sizes: [2xlarge], hypervisor: nitro", "families: [g99], gpuCounts: [1, 4]")


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ("limits: {cpu: 80, gpus: 4}", "unknown"),
        ("limits: {cpu: 80, gpus: 3}", "no"),
        ("limits: {cpu: 19, gpus: 4}", "no"),
        ("limits: {cpu: 80, memory: 79Gi, gpus: 4}", "no"),
        ("limits: {gpus: 4, nodes: 1}", "unknown"),
    ],
)
def test_types_that_are_newer_than_the_table_are_refused_for_their_limits_only(
    capacity_of: CapacityOf, limits: str, fits: str
) -> None:
    """Forty jobs of a tenth of a GPU, half a core and 2Gi."""
    gpu, read = capacity_of("gpu", NEWER, ("", GPU_LIMITS, limits))
    assert gpu.fits == fits
    assert ("gpu" in capacity.excesses(read)) is (fits == "no")


def test_smoke_pods_are_in_the_way(capacity_of: CapacityOf) -> None:
    smoke = "    smokeWorkload: {pool: gpu, image: example.test/smoke:v1}\n  gpu-runners:projects:\n"
    gpu, _ = capacity_of("gpu", ("", "  gpu-runners:projects:\n", smoke))
    (label,) = gpu.labels
    assert (label.guaranteed, label.burst, gpu.fits) == (38, 40, "no")


def test_a_node_selector_chooses_the_type(capacity_of: CapacityOf) -> None:
    selected = ("", "pool: gpu\n", "pool: gpu\n      nodeSelector: {node.kubernetes.io/instance-type: g5.2xlarge}\n")
    smaller = ("", GPU_LIMITS, "limits: {cpu: 80, memory: 40Gi, gpus: 4}")
    assert capacity_of("gpu", selected, smaller)[0].labels[0].burst == 10
    nowhere = (selected[0], selected[1], selected[2].replace("g5.2", "p5.48"))
    with pytest.raises(InvalidSettings, match=r"profiles.nvidia.nodeSelector: no instance type"):
        capacity_of("gpu", nowhere)


def test_small_jobs_can_leave_no_room_for_large_ones(capacity_of: CapacityOf) -> None:
    other = "    linux-cpu-7: {project: example, profile: cpu, gpus: 0, cpu: 7, memory: 6Gi, max: 2}\n"
    cpu, _ = capacity_of("cpu", ("", "  gpu-runners:runners:\n", f"  gpu-runners:runners:\n{other}"))
    small, large = cpu.labels
    assert (large.label, large.guaranteed, large.burst) == ("linux-cpu-7", 0, 2)
    assert [(each.label, each.jobs) for each in large.limited_by] == [("linux-cpu-4", 8)]
    assert (small.guaranteed, small.limited_by) == (10, [])


COUNTS = st.fixed_dictionaries(
    {
        "gpus": st.integers(0, 5),
        "cpu": st.none() | st.integers(1, 45),
        "nodes": st.none() | st.integers(0, 5),
        "replicas": st.none() | st.integers(2, 4),
        "most": st.integers(1, 24),
        "smoke": st.integers(0, 3),
        "overcommit": st.sampled_from(["refused", "allowed"]),
    }
)


@pytest.fixture
def one_type(capacity_of: CapacityOf) -> EksSettings:
    """The settings with a single type of GPU node: g5.2xlarge, with a GPU and eight cores."""
    return capacity_of("gpu", ("", "families: [g4dn, g5]", "families: [g5]"))[1]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=COUNTS)
def test_a_pool_of_one_type_is_refused_beyond_what_its_limits_admit(
    one_type: EksSettings, counts: dict[str, Any]
) -> None:
    """A job is a share of a GPU, and little else."""
    before = one_type
    replicas = counts["replicas"] or 1
    pool = before.cluster.node_pools["gpu"].model_copy(
        update={
            "limits": PoolLimits(
                gpus=counts["gpus"], nodes=counts["nodes"], cpu=None if counts["cpu"] is None else str(counts["cpu"])
            ),
            "sharing": Sharing.model_validate({"timeSlicing": {"replicas": replicas}}) if counts["replicas"] else None,
            "overcommit": counts["overcommit"],
        }
    )
    smoke = SmokeWorkload(pool="gpu", image="example.test/smoke:v1", replicas=max(1, counts["smoke"]))
    cluster = before.cluster.model_copy(
        update={
            "node_pools": before.cluster.node_pools | {"gpu": pool},
            "smoke_workload": smoke if counts["smoke"] else None,
        }
    )
    label = "linux-nvidia-gpu"
    runner = before.runners[label].model_copy(update={"max": counts["most"]})
    changed = before.model_copy(update={"cluster": cluster, "runners": before.runners | {label: runner}})
    unlimited = counts["gpus"]
    provisioned = min(
        unlimited,
        unlimited if counts["cpu"] is None else counts["cpu"] // 8,
        unlimited if counts["nodes"] is None else counts["nodes"],
    )
    beyond = counts["most"] + counts["smoke"] > provisioned * replicas
    # A paused pool is meant to hold nothing.
    meant = counts["overcommit"] == "allowed" or 0 in (counts["gpus"], counts["nodes"])
    assert ("gpu" in capacity.excesses(changed)) is (beyond and not meant)


def test_a_paused_pool_is_said_to_be_paused(project: MakeProject, gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", project({"aws": AWS.replace(GPU_LIMITS, "limits: {gpus: 0}")}), "capacity", "aws")
    assert ended.code == 0
    assert "\npool gpu: paused by its limits (0 GPUs): Karpenter provisions no node, and all jobs wait\n" in ended.out


def test_the_table(project: MakeProject, gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", project({"aws": AWS}), "capacity", "aws")
    assert (ended.code, ended.err) == (0, "")
    pools, _, cost = ended.out.partition("\n\n")[2].partition("\n\n")
    assert cost.startswith("cost per hour at max")
    assert pools.splitlines() == [
        "pool cpu: all labels at their max fit at the same time within its limits (64 cores)",
        "pool gpu: all labels at their max fit at the same time within its limits (80 cores, 4 GPUs), on any of"
        " its 2 instance types",
    ]


def test_json_is_the_capacity(project: MakeProject, gpufleet: Gpufleet) -> None:
    text = AWS.replace(GPU_LIMITS, "limits: {cpu: 80, gpus: 3}")
    ended = gpufleet("-C", project({"aws": text}), "capacity", "aws", "--format", "json")
    read = json.loads(ended.out)
    assert ended.code == 1
    assert [pool["kind"] for pool in read["pools"]] == ["elastic", "elastic"]
    assert set(read["pools"][1]) == set(ElasticPoolCapacity.model_json_schema()["properties"])


def test_a_pool_of_hundreds_of_types(capacity_of: CapacityOf) -> None:
    more = "".join(
        f"    cpu-{n}: {{project: example, profile: cpu, gpus: 0, cpu: {n}, memory: {2 * n}Gi, max: 30}}\n"
        for n in (1, 2, 5)
    )
    wide = "instances: {categories: [c, m, r], cpus: [4, 8, 16, 32], hypervisor: nitro}"
    _, read = capacity_of(
        "cpu",
        ("", "instances: {families: [m6i], cpus: [8], hypervisor: nitro}", wide),
        ("", CPU_LIMITS, "limits: {cpu: 1000}"),
        ("", "  gpu-runners:runners:\n", f"  gpu-runners:runners:\n{more}"),
    )
    (cpu, _) = capacity.capacity("aws", read).pools
    assert len(cpu.labels) == 4


ONE_TYPE = AWS.replace("families: [g4dn, g5], sizes: [2xlarge]", "families: [g4dn], sizes: [xlarge]").replace(
    "ephemeralStorage: 15Gi", "ephemeralStorage: 1Gi"
)


@pytest.mark.parametrize("overcommit", ["", "overcommit: allowed"])
@pytest.mark.parametrize("command", ["check", "capacity"])
def test_a_job_that_fits_no_type_is_an_error_at_its_line(
    project: MakeProject, gpufleet: Gpufleet, command: str, overcommit: str
) -> None:
    """3900m and the DaemonSets of EKS's addons are more than a g4dn.xlarge has: the same for every command."""
    text = ONE_TYPE.replace("cpu: 500m", "cpu: 3900m")
    if overcommit:
        text = text.replace("cpu: 80, gpus: 4}\n", f"cpu: 80, gpus: 4}}\n        {overcommit}\n")
    outcome = gpufleet("-C", project({"aws": text}), command, "aws")
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "cpu: 3900m" in each)
    assert (outcome.code, outcome.out, outcome.err) == (
        2,
        "",
        f"Pulumi.aws.yaml:{line}: runners.linux-nvidia-gpu.cpu: 3900m does not fit a node of the pool 'gpu':"
        " its largest type, g4dn.xlarge, has room for 3.77; request at most that, or allow larger types in the pool\n",
    )


def test_what_check_admits_capacity_holds(project: MakeProject, gpufleet: Gpufleet) -> None:
    """The largest job that is no error has room on a node."""
    root = project({"aws": ONE_TYPE.replace("cpu: 500m", "cpu: 3770m").replace("max: 40", "max: 4")})
    outcome = gpufleet("-C", root, "capacity", "aws", "--format", "json")
    assert outcome.code == 0, outcome.out + outcome.err
    (label,) = json.loads(outcome.out)["pools"][1]["labels"]
    assert (label["guaranteed"], label["shares"]["CPU"]) == (4, 1.0)


def test_types_newer_than_the_table_hold_what_nobody_knows(project: MakeProject, gpufleet: Gpufleet) -> None:
    """None of the table's has room, and the pool's own are in no table: there is no part of a node to tell."""
    newer = ONE_TYPE.replace("cpu: 500m", "cpu: 3900m").replace("sizes: [xlarge],", "sizes: [xlarge], gpuCounts: [1],")
    outcome = gpufleet("-C", project({"aws": newer}), "capacity", "aws")
    assert outcome.code in (0, 1), outcome.err
    assert "linux-nvidia-gpu" in outcome.out
