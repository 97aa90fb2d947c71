"""The rules of node pools are those of Karpenter's CRDs: a real API server is asked about each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components import KarpenterNodePoolArgs
from components.karpenter_node_pool import violations
from sandbox.control_plane import ControlPlane
from sandbox.errors import SandboxError
from sandbox.objects import apply, dry_run, prune
from tests.node_pools import CRD_REFUSES, VALID, WE_REFUSE, objects

CRDS = Path(__file__).resolve().parents[3] / "shared/data/crds"
OWNER = "karpenter-objects"


@pytest.fixture(scope="module")
def karpenter(control_plane: ControlPlane) -> Iterator[Path]:
    """The kubeconfig of a cluster that has Karpenter's CRDs, and no Karpenter."""
    files = sorted(CRDS.glob("karpenter.*.yaml"))
    if not files:
        pytest.skip("no Karpenter CRDs in data/crds of a folder 'shared' beside the repository")
    control_plane.up()
    definitions = [yaml.safe_load(file.read_text()) for file in files]
    apply(control_plane.kubeconfig, definitions, OWNER)
    yield control_plane.kubeconfig
    prune(control_plane.kubeconfig, [], OWNER)


@pytest.mark.parametrize("args", VALID.values(), ids=list(VALID))
def test_what_we_let_through_is_taken(karpenter: Path, args: KarpenterNodePoolArgs) -> None:
    assert violations(args) == []
    dry_run(karpenter, objects(args))


@pytest.mark.parametrize(("args", "ours", "theirs"), CRD_REFUSES.values(), ids=list(CRD_REFUSES))
def test_what_a_crd_refuses_is_refused_there(
    karpenter: Path, args: KarpenterNodePoolArgs, ours: str, theirs: str
) -> None:
    assert any(ours in fault for fault in violations(args))
    with pytest.raises(SandboxError) as refused:
        dry_run(karpenter, objects(args))
    assert theirs in str(refused.value)


@pytest.mark.parametrize(("args", "ours"), WE_REFUSE.values(), ids=list(WE_REFUSE))
def test_rules_of_our_own_are_not_the_servers(karpenter: Path, args: KarpenterNodePoolArgs, ours: str) -> None:
    """What stands in that table although the server refuses it belongs to the other one."""
    assert any(ours in fault for fault in violations(args))
    dry_run(karpenter, objects(args))
