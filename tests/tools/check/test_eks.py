"""Findings about clusters on EKS: when each is raised, and by how little it is not."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet_stacks.settings import load
from gpufleet_tools.check import findings
from gpufleet_tools.check.eks import findings as eks_findings
from tests.conftest import ROOT

TODAY = datetime.date(2027, 1, 15)

SMALLEST = (ROOT / "tests" / "settings" / "eks-smallest.ok.yaml").read_text()

TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}

Change = Callable[[dict[str, Any]], None]


def reported(folder: pathlib.Path, *changes: Change) -> dict[tuple[str, str, str], str]:
    """Messages of the open findings on the smallest cluster with the changes, by name, severity and path."""
    content = yaml.safe_load(SMALLEST)
    sections = {key.removeprefix("gpu-runners:"): value for key, value in content["config"].items()}
    for change in changes:
        change(sections)
    config = {f"gpu-runners:{key}": value for key, value in sections.items()}
    text = yaml.dump({"config": config}, Dumper=yaml.CSafeDumper)
    path = folder / "Pulumi.lab.yaml"
    path.write_text(text)
    report = findings.report(*load.from_file(path), TODAY)
    return {(one.name, one.severity, str(at).split(": ")[1]): one.message for one, at in report.open}


def cluster(**fields: Any) -> Change:
    """Sets fields of the cluster."""
    return lambda sections: sections["cluster"].update(fields)


def pool(**fields: Any) -> Change:
    """Sets fields of its pool."""
    return lambda sections: sections["cluster"]["nodePools"]["gpu"].update(fields)


def runner(**fields: Any) -> Change:
    """Sets fields of its runner."""
    return lambda sections: sections["runners"]["a10g"].update(fields)


def cpu_pool(**fields: Any) -> Change:
    """Adds a pool without GPUs, and says on which the runner is."""

    def change(sections: dict[str, Any]) -> None:
        usual = {
            "instances": {"categories": ["m"], "sizes": ["2xlarge"]},
            "amis": [{"alias": "al2023@v20260512"}],
            "limits": {"cpu": 100},
            "terminationGracePeriod": "6h",
        }
        sections["cluster"]["nodePools"]["cpu"] = usual | fields
        sections["profiles"] = {"a10g": {"pool": "gpu", "tolerations": [{"operator": "Exists"}]}}
        sections["runners"]["a10g"]["profile"] = "a10g"

    return change


def tainted(sections: dict[str, Any]) -> None:
    """Taints its pool, and has the runner tolerate it."""
    pool(taints=[TAINT])(sections)
    sections.setdefault("profiles", {})["a10g"] = {"pool": "gpu", "tolerations": [{"operator": "Exists"}]}
    runner(profile="a10g")(sections)


def together(*changes: Change) -> Change:
    """All of the changes."""

    def change(sections: dict[str, Any]) -> None:
        for one in changes:
            one(sections)

    return change


def sharing(**fields: Any) -> Change:
    """Has its GPUs shared."""
    return pool(sharing={"timeSlicing": {"replicas": 4, **fields}})


def disruption(**fields: Any) -> Change:
    """Says when nodes of its pool are taken away."""
    return pool(disruption=fields)


def smoke(image: str) -> Change:
    """Has pods that prove it works, and room for them."""
    return together(cluster(smokeWorkload={"pool": "gpu", "image": image}), runner(max=2))


def team(*policies: dict[str, Any]) -> Change:
    """A team with access to the cluster."""
    return cluster(access={"ml": {"principal": "arn:aws:iam::111122223333:role/ml", "policies": [*policies]}})


CLAIM: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}


def claim(docker: dict[str, Any]) -> Change:
    """Says how jobs of its profile run containers."""
    return lambda sections: sections["profiles"]["a10g"].update(docker=docker)


def storage_class(**fields: Any) -> Change:
    """Has a StorageClass, and the driver for its volumes."""

    def change(sections: dict[str, Any]) -> None:
        sections["cluster"]["storageClasses"] = {"gp3": fields}
        sections["cluster"]["addons"]["aws-ebs-csi-driver"] = "v1.62.0-eksbuild.1"

    return change


def metrics_server(**values: Any) -> Change:
    """Has the addon, with configuration values."""

    def change(sections: dict[str, Any]) -> None:
        sections["cluster"]["addons"]["metrics-server"] = "v0.8.0-eksbuild.2"
        sections["cluster"]["addonConfiguration"] = {"metrics-server": values}

    return change


def prefixes(sections: dict[str, Any]) -> None:
    """Nodes with more addresses."""
    cluster(addonConfiguration={"vpc-cni": {"env": {"ENABLE_PREFIX_DELEGATION": "true"}}})(sections)


PINNED = "nvidia/cuda:13.0.0-base-ubuntu24.04"
GPU = "cluster.nodePools.gpu"

RAISED: dict[str, tuple[Change, str, str, str]] = {
    "evicts what is not busy": (
        disruption(consolidationPolicy="WhenEmptyOrUnderutilized"),
        "disturbed-jobs",
        "warning",
        f"{GPU}.disruption.consolidationPolicy",
    ),
    "evicts to balance": (
        disruption(consolidationPolicy="Balanced"),
        "disturbed-jobs",
        "warning",
        f"{GPU}.disruption.consolidationPolicy",
    ),
    "gives nodes back at once": (
        disruption(consolidateAfter="0s"),
        "hasty-removal",
        "warning",
        f"{GPU}.disruption.consolidateAfter",
    ),
    "expires without an end": (
        cpu_pool(terminationGracePeriod=None),
        "endless-drain",
        "warning",
        "cluster.nodePools.cpu",
    ),
    "less time than a job may take": (
        pool(terminationGracePeriod="5h59m59s"),
        "short-grace-period",
        "warning",
        f"{GPU}.terminationGracePeriod",
    ),
    "an addon that keeps nodes": (
        metrics_server(),
        "addon-on-any-node",
        "note",
        "cluster.addons.metrics-server",
    ),
    "spot first": (pool(capacity=["spot", "on-demand"]), "jobs-on-spot", "note", f"{GPU}.capacity"),
    "spot alone": (pool(capacity=["spot"]), "jobs-on-spot", "warning", f"{GPU}.capacity"),
    "a disk of Karpenter's own size": (pool(rootVolume="20Gi"), "small-disk", "warning", f"{GPU}.rootVolume"),
    "two shares of one GPU": (
        sharing(failRequestsGreaterThanOne=False),
        "several-shares",
        "warning",
        f"{GPU}.sharing.timeSlicing.failRequestsGreaterThanOne",
    ),
    "shares": (sharing(), "shared-gpu", "note", f"{GPU}.sharing"),
    "EFA interfaces that nobody requests": (
        pool(efa="onRequest", instances={"families": ["g5"], "sizes": ["12xlarge"]}),
        "efa-on-some-nodes",
        "warning",
        f"{GPU}.efa",
    ),
    "a cache that nothing fills": (
        cluster(
            imageCache={"quay": {"registry": "quay.io"}},
            network={
                "kind": "own",
                "zones": ["eu-west-1a", "eu-west-1b"],
                "natGateways": "none",
                "interfaceEndpoints": ["ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "sts", "ssm", "sqs"],
            },
        ),
        "first-pull-without-nat",
        "warning",
        "cluster.imageCache",
    ),
    "no taint": (pool(taints=[]), "untainted-gpus", "warning", GPU),
    "a taint that only asks": (
        pool(taints=[TAINT | {"effect": "PreferNoSchedule"}]),
        "untainted-gpus",
        "warning",
        GPU,
    ),
    "metadata two hops away": (pool(metadataHopLimit=2), "reachable-node-role", "warning", f"{GPU}.metadataHopLimit"),
    "a role of others": (pool(role="nodes"), "role-of-others", "warning", f"{GPU}.role"),
    "an instance profile": (pool(instanceProfile="nodes"), "role-of-others", "warning", f"{GPU}.instanceProfile"),
    "parallel pulls onto a slow disk": (
        pool(fastImagePull=True),
        "fruitless-fast-pull",
        "warning",
        f"{GPU}.rootVolumeThroughput",
    ),
    "parallel pulls on small nodes": (
        cpu_pool(instances={"categories": ["m"], "sizes": ["large"]}, fastImagePull=True, instanceStore="RAID0"),
        "fruitless-fast-pull",
        "warning",
        "cluster.nodePools.cpu.fastImagePull",
    ),
    "reservations that nothing uses": (
        pool(reservations=[{"id": "cr-0123456789abcdef0"}]),
        "idle-reservations",
        "warning",
        f"{GPU}.reservations",
    ),
    "a reservation of which nothing is known": (
        pool(capacity=["reserved"], reservations=[{"id": "cr-0123456789abcdef0"}]),
        "unknown-reservation",
        "note",
        f"{GPU}.reservations[0]",
    ),
    "idle runners with more cores than there may be": (
        together(pool(limits={"gpus": 4, "cpu": 48}), runner(cpu=13, min=4)),
        "minimum-beyond-limits",
        "error",
        f"{GPU}.limits.cpu",
    ),
    "pods that sleep": (smoke(PINNED), "smoke-holds-node", "note", "cluster.smokeWorkload"),
    "an API server for everybody": (
        cluster(endpoint={"publicAccessFrom": ["192.0.2.0/24", "0.0.0.0/0"], "openToTheWorld": True}),
        "open-endpoint",
        "warning",
        "cluster.endpoint.publicAccessFrom[1]",
    ),
    "a team that reads Secrets everywhere": (
        team({"policy": "AmazonEKSEditPolicy"}),
        "reads-credentials",
        "warning",
        "cluster.access.ml.policies[0]",
    ),
    "a team that reads a project's Secrets": (
        team({"policy": "AmazonEKSViewPolicy"}, {"policy": "AmazonEKSAdminViewPolicy", "namespaces": ["web", "m*"]}),
        "reads-credentials",
        "warning",
        "cluster.access.ml.policies[1]",
    ),
    "job pods without a class for their claim": (
        claim({"kind": "kubernetes", "workVolumeClaim": CLAIM}),
        "claim-without-class",
        "warning",
        "profiles.a10g.docker.workVolumeClaim",
    ),
    "prefixes that give no more pods": (
        prefixes,
        "useless-prefixes",
        "note",
        f"{GPU}.kubelet",
    ),
    "a cluster that is deleted without a word": (
        cluster(deletionProtection=False),
        "unprotected-cluster",
        "warning",
        "cluster.deletionProtection",
    ),
}


def moved(sections: dict[str, Any]) -> None:
    """To a region that there is not; of its types the table says nothing."""
    cluster, network = sections["cluster"], sections["cluster"]["network"]
    cluster["region"] = "eu-vest-1"
    subnets = network["privateSubnets"].items()
    network["privateSubnets"] = {zone.replace("eu-west-1", "eu-vest-1"): subnet for zone, subnet in subnets}
    cluster["nodePools"]["gpu"]["instances"]["gpuCounts"] = [1, 4]


RAISED |= {
    "a region that there is not": (moved, "unknown-region", "warning", "cluster.region"),
    "a pool that is paused": (cpu_pool(limits={"nodes": 0}), "paused-pool", "note", "cluster.nodePools.cpu.limits"),
    "system nodes of which one holds too little": (
        cluster(systemNodes={"instanceType": "t3.small"}),
        "full-system-nodes",
        "warning",
        "cluster.systemNodes",
    ),
}


@pytest.mark.parametrize(("labels", "severities"), [(1, []), (24, ["warning"]), (60, ["error", "warning"])])
def test_system_nodes_fill_with_listeners(tmp_path: pathlib.Path, labels: int, severities: list[str]) -> None:
    """Two m6i.large have 52 pods beside their DaemonSets: each label takes one, Karpenter, ARC and CoreDNS five. 60
    are too many pods for both, and too much memory for one."""

    def more(sections: dict[str, Any]) -> None:
        sections["runners"] = {f"label-{number}": sections["runners"]["a10g"] for number in range(labels)}

    found = reported(tmp_path, tainted, more)
    said = {severity for name, severity, _ in found if name == "full-system-nodes"}
    assert said == set(severities)


@pytest.mark.parametrize(("change", "name", "severity", "path"), RAISED.values(), ids=RAISED)
def test_a_finding_is_raised_alone(tmp_path: pathlib.Path, change: Change, name: str, severity: str, path: str) -> None:
    found = reported(tmp_path, tainted, change)
    # What shares GPUs, and sleeps on them, is found whatever else is.
    accompany = {("shared-gpu", "note"), ("smoke-holds-node", "note")} - {(name, severity)}
    if name == "minimum-beyond-limits":
        accompany.add(("overcommitted", "error"))
    assert {key for key in found if key[:2] not in accompany} == {(name, severity, path)}


QUIET: dict[str, Change] = {
    "nothing else": lambda _: None,
    "EFA interfaces on every node": pool(efa="always", instances={"families": ["g5"], "sizes": ["12xlarge"]}),
    "a cache that NAT gateways fill": cluster(imageCache={"quay": {"registry": "quay.io"}}),
    "a moment before nodes are given back": disruption(consolidateAfter="1s"),
    "never given back": disruption(consolidateAfter="Never"),
    "all the time that a job may take": pool(terminationGracePeriod="5h60m"),
    "less time where no runner is": cpu_pool(terminationGracePeriod="10m"),
    "an addon on the system nodes": metrics_server(nodeSelector={"gpu-runners/nodes": "system"}),
    "nodes that never expire": cpu_pool(terminationGracePeriod=None, expireAfter="Never"),
    "spot where no runner is": cpu_pool(capacity=["spot"]),
    "a disk that holds images": pool(rootVolume="50Gi"),
    "a small disk beside the instance's own": pool(rootVolume="20Gi", instanceStore="RAID0"),
    "a taint that evicts": pool(taints=[TAINT | {"effect": "NoExecute"}]),
    "no taint where no GPU is": cpu_pool(),
    "parallel pulls onto a fast disk": pool(fastImagePull=True, rootVolumeThroughput=600),
    "reservations that are used": pool(
        capacity=["reserved", "on-demand"],
        reservations=[
            {
                "id": "cr-0123456789abcdef0",
                "holds": {"instanceType": "g5.12xlarge", "zone": "eu-west-1a", "instances": 1},
            }
        ],
    ),
    "idle runners with all the cores there may be": together(
        pool(limits={"gpus": 4, "cpu": 48}, overcommit="allowed"), runner(cpu=12, min=4)
    ),
    "runners with more memory than there may be, as declared": together(
        pool(limits={"gpus": 4, "memory": "200Gi"}, overcommit="allowed"), runner(memory="50Gi")
    ),
    "runners with more GPUs than there may be, as declared": together(pool(overcommit="allowed"), runner(max=5)),
    "a team that reads all but Secrets": team({"policy": "AmazonEKSViewPolicy"}),
    "a team that reads Secrets of its own": team({"policy": "AmazonEKSEditPolicy", "namespaces": ["web-*"]}),
    "job pods with a class for their claim": claim(
        {"kind": "kubernetes", "workVolumeClaim": CLAIM | {"storageClassName": "gp2"}}
    ),
    "job pods that get the default class": together(
        claim({"kind": "kubernetes", "workVolumeClaim": CLAIM}), storage_class(default=True)
    ),
    "prefixes for more pods": together(prefixes, pool(kubelet={"maxPods": 110})),
    "an API server for a provider's network": cluster(endpoint={"publicAccessFrom": ["10.0.0.0/8"]}),
}


@pytest.mark.parametrize("change", QUIET.values(), ids=QUIET)
def test_no_finding_is_raised(tmp_path: pathlib.Path, change: Change) -> None:
    assert reported(tmp_path, tainted, change) == {}


@pytest.mark.parametrize("image", [PINNED, "tensorflow/tensorflow:latest-gpu@sha256:" + "0" * 64])
def test_a_pinned_smoke_image_does_not_move(tmp_path: pathlib.Path, image: str) -> None:
    assert {name for name, _, _ in reported(tmp_path, tainted, smoke(image))} == {"smoke-holds-node"}


@pytest.mark.parametrize("image", ["tensorflow/tensorflow:latest-gpu", "tensorflow/tensorflow"])
def test_a_smoke_image_that_moves_is_found_like_any_other(tmp_path: pathlib.Path, image: str) -> None:
    found = reported(tmp_path, tainted, smoke(image))
    assert found.keys() == {
        ("smoke-holds-node", "note", "cluster.smokeWorkload"),
        ("mutable-image", "warning", "cluster.smokeWorkload.image"),
    }


def test_every_finding_has_a_test_and_a_name() -> None:
    assert {name for _, name, _, _ in RAISED.values()} == set(eks_findings.NAMES)
    assert len(eks_findings.NAMES) == len(eks_findings.RULES)


def test_no_name_is_of_two_findings() -> None:
    assert not eks_findings.NAMES & findings.NAMES


# -- what is found of every kind of cluster ---------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [pool(), sharing()], ids=["whole", "shared"])
def test_docker_beside_nvidia_gpus_is_told_in_their_words(tmp_path: pathlib.Path, shared: Change) -> None:
    found = reported(tmp_path, tainted, shared, runner(docker=True))
    message = found["shared-docker", "warning", "runners.a10g.docker"]
    assert "/dev/nvidia0" in message
    assert not [word for word in ("/dev/dri", "render", "all 4", "16 GPUs") if word in message]


def test_docker_on_a_whole_node_is_nobodys_neighbour(tmp_path: pathlib.Path) -> None:
    found = reported(tmp_path, tainted, runner(docker=True, gpus=4, max=1))
    assert {name for name, _, _ in found} == {"unlimited-docker"}


def test_idle_runners_are_held_to_the_shares_of_the_limit(tmp_path: pathlib.Path) -> None:
    """Four GPUs, each four times, are sixteen."""
    enough = reported(tmp_path, tainted, sharing(), runner(min=16, max=16, memory="4Gi", cpu=2))
    assert {name for name, _, _ in enough} == {"shared-gpu"}
    more = reported(tmp_path, tainted, sharing(), runner(min=17, max=17))
    assert ("minimum-exceeds-pool", "error", GPU) in more


@pytest.mark.parametrize(
    ("limits", "runners", "said"),
    [
        ({"gpus": 4}, {"max": 5}, "4 GPUs"),
        ({"gpus": 4, "memory": "200Gi"}, {"memory": "50Gi"}, "200Gi, 4 GPUs"),
        ({"gpus": 4, "cpu": 15}, {"max": 2}, "15 cores, 4 GPUs"),
    ],
)
def test_more_than_fits_within_limits_is_refused_until_it_is_declared(
    tmp_path: pathlib.Path, limits: dict[str, Any], runners: dict[str, Any], said: str
) -> None:
    found = reported(tmp_path, tainted, pool(limits=limits), runner(**runners))
    message = found.pop(("overcommitted", "error", GPU))
    assert message.startswith(f"all labels at their max do not fit within its limits ({said}) on any instance type")
    assert message.endswith("lower a max, raise a limit, or write 'overcommit: allowed'")
    declared = reported(tmp_path, tainted, pool(limits=limits, overcommit="allowed"), runner(**runners))
    assert declared == found
