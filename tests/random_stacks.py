"""Random pools of Karpenter with jobs, for tests that compare what several parts say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.rules.eks import RULES, gpus_are_of_a_pool_with_gpus, runners_fit_a_node

STACK: Mapping[str, Any] = {
    "cluster": {
        "kind": "eks",
        "name": "lab",
        "region": "us-east-1",
        "account": "111122223333",
        "kubernetesVersion": "1.34",
        "network": {"kind": "own", "zones": ["us-east-1a", "us-east-1b"]},
        "addons": {
            "vpc-cni": "v1.22.4-eksbuild.3",
            "coredns": "v1.13.2-eksbuild.21",
            "kube-proxy": "v1.34.6-eksbuild.11",
            "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
        },
    },
    "projects": {
        "ml": {
            "configUrl": "https://github.com/example",
            "namespace": "ml",
            "credentials": {"kind": "existingSecret", "secretName": "ml-github"},
        }
    },
}

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "disk": {"ephemeralStorage": "60Gi"},
    "large-disk": {"ephemeralStorage": "120Gi"},
}
"""Profiles of the jobs, by name; each pool has its own."""

POOL_SETTINGS = frozenset({"gpu-limit-too-small", "limit-too-small", "limits-admit-nothing"})
"""Codes of the problems that a random pool may have: its limits admit no node."""


@dataclass(frozen=True)
class Mix:
    """A pool with jobs, in the words of a stack file."""

    pool: Mapping[str, Any]
    runners: Sequence[Mapping[str, Any]]

    def settings(self) -> EksSettings:
        """The pool `pool` in a stack of its own, with labels `pool-0`, `pool-1` and so on."""
        return EksSettings.model_validate(stack({"pool": self}))

    def has_limits_for_nothing(self) -> bool | None:
        """Whether the limits admit no node; None for a pool with another problem."""
        codes = {problem.code for rule in RULES for problem in rule(self.settings())}
        return bool(codes) if codes <= POOL_SETTINGS else None


def stack(mixes: Mapping[str, Mix], **cluster: Any) -> dict[str, Any]:
    """The sections of a stack file with these pools, by name, and further settings of the cluster. Labels are named
    after their pool."""
    return {
        **STACK,
        "cluster": {**STACK["cluster"], **cluster, "nodePools": {name: dict(mix.pool) for name, mix in mixes.items()}},
        "profiles": {
            f"{name}-{profile}": {"pool": name, **fields} for name in mixes for profile, fields in PROFILES.items()
        },
        "runners": {
            f"{name}-{number}": {**runner, "profile": f"{name}-{runner['profile']}"}
            for name, mix in mixes.items()
            for number, runner in enumerate(mix.runners)
        },
    }


def a_pool(families: list[str], sizes: list[str], *, gpus: bool, **fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Pools of some of these instance types, with limits of which some admit little or nothing."""
    one_to_two = st.lists(st.sampled_from(sizes), min_size=1, max_size=2, unique=True)
    some_families = st.lists(st.sampled_from(families), min_size=1, max_size=2, unique=True)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "cpu": st.integers(4, 96),
        "memory": st.integers(16, 256).map("{}Gi".format),
        "nodes": st.integers(1, 8),
    }
    limits = st.fixed_dictionaries({"gpus": st.integers(1, 8)} if gpus else {}, optional=optional)
    images = st.sampled_from([[{"alias": "al2023@v20260512"}], [{"alias": "bottlerocket@v1.53.0"}]])
    given = st.fixed_dictionaries(
        {
            "instances": st.fixed_dictionaries(
                {
                    "families": some_families,
                    "sizes": one_to_two,
                    **{key: st.just(value) for key, value in fixed.items()},
                }
            ),
            "amis": images,
            "rootVolume": st.sampled_from(["100Gi", "200Gi"]),
            "limits": limits,
            "terminationGracePeriod": st.just("6h"),
        },
        optional={
            "kubelet": KUBELETS,
            "capacity": st.sampled_from([["on-demand"], ["spot"], ["on-demand", "spot"]]),
            "zones": st.sampled_from([["us-east-1a"], ["us-east-1b"]]),
            "instanceStore": st.just("RAID0"),
            **({"sharing": SHARED} if gpus else {}),
        },
    )
    return given.map(_with_plugin) if gpus else given


KUBELETS = st.one_of(
    st.integers(8, 20).map(lambda pods: {"maxPods": pods}),
    st.just({"systemReserved": {"cpu": "200m", "memory": "1Gi"}}),
    st.just({"evictionHard": {"memory.available": "5%", "nodefs.available": "20Gi"}}),
)
SHARED = st.tuples(st.sampled_from(["timeSlicing", "mps"]), st.integers(2, 4)).map(
    lambda drawn: {drawn[0]: {"replicas": drawn[1]}}
)


def _with_plugin(pool: dict[str, Any]) -> dict[str, Any]:
    """Label the nodes that the device plugin's DaemonSet serves."""
    own_plugin = pool["amis"][0]["alias"].startswith("bottlerocket")
    return pool if own_plugin else {**pool, "labels": {"nvidia.com/gpu.present": "true"}}


POOLS = st.one_of(
    a_pool(["g4dn", "g5", "g6"], ["xlarge", "2xlarge", "12xlarge"], gpus=True),
    a_pool(["m6i", "c6id", "r6i"], ["large", "xlarge", "2xlarge"], gpus=False),
    a_pool(["m7g", "c6gd", "r7g"], ["large", "xlarge", "2xlarge"], gpus=False, architecture="arm64"),
)

RUNNERS = st.fixed_dictionaries(
    {
        "project": st.just("ml"),
        "profile": st.sampled_from(["plain", "disk", "large-disk"]),
        "gpus": st.sampled_from([0, 1, 1, 1, 2, 4]),
        "cpu": st.sampled_from(["500m", "1", "2", "3900m", "7", "16"]),
        "memory": st.sampled_from(["1Gi", "4Gi", "12Gi", "28Gi", "100Gi"]),
        "max": st.integers(1, 4),
    }
)


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    """A pool and up to three labels, valid but for what the rules about room and limits refuse."""
    pool = draw(POOLS)
    runners = draw(st.lists(RUNNERS, min_size=1, max_size=3))
    if "gpus" not in pool["limits"]:
        runners = [{**runner, "gpus": 0} for runner in runners]
    return Mix(pool, runners)


def refused(read: EksSettings) -> dict[str, set[str]]:
    """Codes of the problems that `check` has with each label."""
    found: dict[str, set[str]] = {label: set() for label in read.runners}
    for rule in (gpus_are_of_a_pool_with_gpus, runners_fit_a_node):
        for problem in rule(read):
            if problem.path[0] == "runners":
                found[str(problem.path[1])].add(problem.code)
            else:
                # The disk is the profile's, and too large for one of its labels at least.
                for label, runner in read.runners.items():
                    if runner.profile == problem.path[1]:
                        found[label].add("no-room for the disk")
    return found
