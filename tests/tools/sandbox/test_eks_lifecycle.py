"""The stack on EKS, through the command: up, again, without jobs, down."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet_tools.sandbox import arc_stand_in
from gpufleet_tools.sandbox.control_plane import api_server, processes
from tests.tools.sandbox.test_lifecycle import ROOT, Checkout, row

pytestmark = pytest.mark.slow

DEV = (ROOT / "Pulumi.dev.yaml").read_text()
WITHOUT_SMOKE = re.sub(r" *smokeWorkload:.*\n", "", DEV)
# A busy machine takes minutes for what an idle one does in one.
PATIENCE = 400


@pytest.fixture(scope="module")
def checkout(built: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout whose sandbox is ended when the module is done."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "components", "stacks"):
        (folder / name).symlink_to(ROOT / name)
    made = Checkout(folder, os.environ | {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}, "dev", PATIENCE)
    made.stack_file.write_text(DEV)
    yield made
    made.run("down", "dev")


def test_up_from_nothing(checkout: Checkout) -> None:
    """Two pods of the smoke workload and four runners share one GPU; runners without GPUs have a node of their own."""
    code, out, err = checkout.run("up", "dev", "--jobs", "linux-nvidia-gpu=4", "--jobs", "linux-cpu-4=1")
    assert code == 0, err or out
    assert row(out, "linux-nvidia-gpu")[-3:] == ["4", "4", "0"]
    assert row(out, "linux-cpu-4")[-3:] == ["1", "1", "0"]
    (gpu_node,) = re.findall(r"^kwok-\S+ +gpu +(\S+) +us-east-1\w +(\S+) +yes +(?:up to )?(\S+) +6 of 10 ", out, re.M)
    assert gpu_node[0] == "g4dn.2xlarge"
    assert gpu_node[2] == "0.752"
    assert len(re.findall(r"^gpu-dev-system-nodes-\d +\S+ +m6i.large .* 0.096 ", out, re.M)) == 2
    assert "Deployment gpu                       2 of 2 pods running" in out


def test_up_again_changes_nothing(checkout: Checkout) -> None:
    code, out, _ = checkout.run("up", "dev", "--jobs", "linux-nvidia-gpu=4", "--jobs", "linux-cpu-4=1")
    assert code == 0
    assert out.splitlines()[-1] == "nothing changed: 5 runner pods running"


def arc_pods(checkout: Checkout) -> dict[str, str]:
    """The node of each pod of ARC that runs, by the pod's name."""
    (directory,) = Path(checkout.environment["XDG_STATE_HOME"], "gpufleet").glob("dev-*/")
    pods = api_server.listed(directory / "kubeconfig", ("v1", "Pod"))[0]
    arc = [each for each in pods if arc_stand_in.COMPONENT in each["metadata"].get("labels", {})]
    assert {each["status"]["phase"] for each in arc} == {"Running"}
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in arc}


def test_without_pods_nothing_is_paid_but_the_system_nodes(checkout: Checkout) -> None:
    checkout.stack_file.write_text(WITHOUT_SMOKE)
    code, out, err = checkout.run("up", "dev", "--jobs", "linux-nvidia-gpu=0")
    assert code == 0, err or out
    for _ in range(60):
        _, out, _ = checkout.run("status", "dev")
        if "kwok-" not in out:
            break
    assert row(out, "total")[-1] == "0.192"
    assert row(out, "gpu")[1] == "0"
    # The controller and two listeners: none of them keeps a node of Karpenter.
    assert [node.rpartition("-")[0] for node in arc_pods(checkout).values()] == ["gpu-dev-system-nodes"] * 3


def test_a_rehearsal_is_refused_in_one_line(checkout: Checkout) -> None:
    code, _, err = checkout.run("up", "dev", "--engine", "pulumi")
    assert code == 2
    assert err.splitlines()[-1].startswith("gpufleet: dev: `pulumi up` would create a cluster on EKS")


def test_status_says_what_has_ended(checkout: Checkout) -> None:
    directory = next(Path(checkout.environment["XDG_STATE_HOME"], "gpufleet").glob("dev-*/"))
    processes.kill(directory / "daemons", only="karpenter")
    code, _, err = checkout.run("status", "dev")
    assert code == 2
    assert "karpenter not running" in err


def test_down_leaves_nothing(checkout: Checkout) -> None:
    state = Path(checkout.environment["XDG_STATE_HOME"], "gpufleet")
    assert processes.started_from(state)
    assert checkout.run("down", "dev")[:2] == (0, "the sandbox of dev was removed\n")
    assert processes.started_from(state) == {}
    assert list(state.glob("dev-*/")) == []
