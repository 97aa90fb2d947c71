"""The rules of node pools are those of Karpenter's CRDs: a real API server is asked about each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpufleet import Taint
from gpufleet.aws import AmiTerm, Disruption, DisruptionBudget, KarpenterNodePoolArgs
from gpufleet.aws.karpenter import node_pool_rules
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.control_plane.objects import apply, prune
from gpufleet_tools.sandbox.errors import SandboxError
from tests.karpenter_module import karpenter_file
from tests.node_pools import CRD_REFUSES, VALID, WE_REFUSE, changed, isin, objects
from tests.tools.sandbox.dry_run import dry_run

OWNER = "karpenter-objects"


@pytest.fixture(scope="module")
def karpenter(control_plane: ControlPlane) -> Iterator[Path]:
    """The kubeconfig of a cluster that has Karpenter's CRDs, and no Karpenter."""
    files = sorted(karpenter_file("pkg/apis/crds").glob("karpenter.*.yaml"))
    control_plane.up()
    definitions = [yaml.safe_load(file.read_text()) for file in files]
    apply(control_plane.kubeconfig, definitions, OWNER)
    yield control_plane.kubeconfig
    prune(control_plane.kubeconfig, [], OWNER)


@pytest.mark.parametrize("args", VALID.values(), ids=list(VALID))
def test_what_we_let_through_is_taken(karpenter: Path, args: KarpenterNodePoolArgs) -> None:
    assert not [*node_pool_problems(args)]
    dry_run(karpenter, objects(args))


@pytest.mark.parametrize(("args", "ours", "theirs"), CRD_REFUSES.values(), ids=list(CRD_REFUSES))
def test_what_a_crd_refuses_is_refused_there(
    karpenter: Path, args: KarpenterNodePoolArgs, ours: str, theirs: str
) -> None:
    assert any(ours in str(problem) for problem in node_pool_problems(args))
    with pytest.raises(SandboxError) as refused:
        dry_run(karpenter, objects(args))
    assert theirs in str(refused.value)


@pytest.mark.parametrize(("args", "ours"), WE_REFUSE.values(), ids=list(WE_REFUSE))
def test_rules_of_our_own_are_not_the_servers(karpenter: Path, args: KarpenterNodePoolArgs, ours: str) -> None:
    """What stands in that table although the server refuses it belongs to the other one."""
    assert any(ours in str(problem) for problem in node_pool_problems(args))
    dry_run(karpenter, objects(args))


# -- whatever we let through ------------------------------------------------------------------------------------------


def like(pattern: str, at_most: int = 300) -> st.SearchStrategy[str]:
    """Texts that a pattern of ours takes."""
    found = st.from_regex(getattr(node_pool_rules, pattern), fullmatch=True)
    return found.filter(lambda text: len(text) <= at_most)


BUDGETS = st.builds(DisruptionBudget, nodes=like("BUDGET_NODES")) | st.builds(
    DisruptionBudget,
    nodes=like("BUDGET_NODES"),
    schedule=like("SCHEDULE"),
    duration=like("BUDGET_DURATION"),
)

POOLS = st.builds(
    changed,
    pool=like("_OBJECT_NAME", 63),
    gpu_counts=st.just(()),
    requirements=st.lists(st.builds(isin, like("_QUALIFIED_NAME"), like("_LABEL_VALUE", 63)), max_size=3),
    labels=st.dictionaries(like("_QUALIFIED_NAME"), like("_LABEL_VALUE", 63), max_size=2),
    taints=st.lists(
        st.builds(Taint, key=like("_QUALIFIED_NAME"), value=st.none() | like("_LABEL_VALUE")),
        max_size=2,
    ),
    limits=st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), like("_QUANTITY")),
    disruption=st.builds(Disruption, consolidate_after=like("DURATION"), budgets=st.lists(BUDGETS, max_size=2)),
    expire_after=like("DURATION"),
    termination_grace_period=like("DURATION"),
    class_root_volume_size=like("_VOLUME_SIZE"),
    class_ami_terms=st.builds(
        lambda family, alias: [AmiTerm(alias=f"{family}@{alias.partition('@')[2]}")],
        st.sampled_from(["al2", "al2023", "bottlerocket"]),
        like("_ALIAS"),
    ),
)


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(args=POOLS)
def test_whatever_we_let_through_is_taken(karpenter: Path, args: KarpenterNodePoolArgs) -> None:
    """Not made smaller when it fails: each try asks the server."""
    if not [*node_pool_problems(args)]:
        dry_run(karpenter, objects(args))
