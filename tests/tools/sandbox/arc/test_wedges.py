"""Every known wedge of ARC: reproduced with ARC's own programs, found by the doctor, and cured by the commands that it
prints, which kubectl runs.

They run where GPUFLEET_ARC has ARC's programs and GPUFLEET_CHARTS its charts.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpufleet_tools.doctor import diagnosis
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.sandbox import lifecycle, real_arc
from gpufleet_tools.sandbox.build import binaries
from tests.conftest import ROOT
from tests.tools.sandbox.arc.fleets import FIRST, MI300, PATIENCE, REQUIRES_ARC, SECOND, Real, until

pytestmark = [pytest.mark.process, pytest.mark.slow, REQUIRES_ARC]

NAMESPACE, SECRET = "gpu-test-cluster", "pre-defined-rocm-secret"
"""Namespace and credentials of SECOND."""

SYSTEM, CONTROLLER = "arc-systems", "arc-gha-rs-controller"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """One sandbox for all wedges."""
    root = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "components", "stacks"):
        (root / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield Real(root)
        lifecycle.down(root, "mi300")


@pytest.fixture
def fleet(sandbox: Real) -> Real:
    """The sandbox as the stack file declares it: the doctor finds nothing, and one job of SECOND runs."""
    sandbox.up(mi300_cluster=1)
    until_nothing_is_found(sandbox)
    until(lambda: sandbox.jobs(SECOND, "running") == 1)
    return sandbox


def diagnosed(fleet: Real) -> list[Finding]:
    return list(diagnosis.diagnose(fleet.stack, fleet.kubeconfig).findings)


def until_nothing_is_found(fleet: Real) -> None:
    deadline = time.monotonic() + PATIENCE
    while findings := diagnosed(fleet):
        assert time.monotonic() < deadline, findings
        time.sleep(0.5)


def found(fleet: Real, name: str, subject: str = SECOND) -> Finding:
    """Wait until the doctor finds it."""
    result: list[Finding] = []

    def is_found() -> bool:
        result[:] = [each for each in diagnosed(fleet) if (each.name, each.subject) == (name, subject)]
        return bool(result)

    until(is_found)
    return result[0]


def run(*commands: str) -> None:
    """Run commands as a user would, with kubectl on PATH."""
    tools = binaries.without_building().path("kubectl").parent
    for command in commands:
        assert command.startswith("kubectl --kubeconfig"), "it says which cluster it changes"
        subprocess.run(command, shell=True, check=True, env={"PATH": f"{tools}:{os.defpath}", "HOME": "/nowhere"})


def kubectl(fleet: Real, arguments: str) -> None:
    run(f"kubectl --kubeconfig {fleet.kubeconfig} {arguments}")


def assert_cured(fleet: Real, jobs: int) -> None:
    """The doctor finds nothing any more, no job was lost, and another job runs."""
    until_nothing_is_found(fleet)
    assert fleet.jobs(SECOND, "running") == jobs
    fleet.github.call("queue", label=SECOND, count=1, seconds=None)
    until(lambda: fleet.jobs(SECOND, "running") == jobs + 1)


def runner_set(fleet: Real) -> str:
    """Name of the current EphemeralRunnerSet of SECOND."""
    kind = ("actions.github.com/v1alpha1", "EphemeralRunnerSet")
    own = [each["metadata"] for each in fleet.listed(kind) if each["metadata"]["namespace"] == NAMESPACE]
    return str(max(own, key=lambda each: str(each["creationTimestamp"]))["name"])


def new_secret(fleet: Real) -> dict[str, Any]:
    """The Secret of SECOND with another key."""
    folder = real_arc.folder_of(lifecycle.running(fleet.stack))
    (folder / f"{NAMESPACE}-{SECRET}.pem").unlink()
    own = real_arc.with_app_keys(lifecycle.own_objects(fleet.stack.plan()), folder)
    (secret,) = (each for each in own if each["metadata"]["name"] == SECRET)
    return secret


# -- wedges -----------------------------------------------------------------------------------------------------------


def test_the_set_of_runners_was_deleted_by_hand(fleet: Real) -> None:
    kubectl(fleet, f"delete ephemeralrunnerset -n {NAMESPACE} --wait=false {runner_set(fleet)}")
    finding = found(fleet, "stale-listener")
    assert finding.fact.endswith("which is being deleted"), "it waits for the job"
    run(*finding.commands)
    assert_cured(fleet, jobs=1)


def test_the_listener_refers_to_a_set_of_runners_that_is_gone(fleet: Real) -> None:
    fleet.github.call("end", label=SECOND, count=None, result="succeeded")
    until(lambda: fleet.jobs(SECOND, "running") == 0)
    kubectl(fleet, f"delete ephemeralrunnerset -n {NAMESPACE} {runner_set(fleet)}")
    until(lambda: any(each.fact.endswith("which does not exist") for each in diagnosed(fleet)))
    run(*found(fleet, "stale-listener").commands)
    assert_cured(fleet, jobs=0)


def test_eventual_updates_keep_the_listener_away(fleet: Real) -> None:
    with fleet.installed() as (deployment, _, _):
        pass
    changed: Any = copy.deepcopy(dict(deployment))
    changed["spec"]["template"]["spec"]["containers"][0]["args"].append("--update-strategy=eventual")
    fleet.apply(changed)
    until(lambda: eventual(fleet, "eventual"))
    kubectl(
        fleet, f'patch autoscalingrunnerset -n {NAMESPACE} {SECOND} --type merge -p \'{{"spec":{{"maxRunners":7}}}}\''
    )
    finding = found(fleet, "eventual-update")
    time.sleep(10)
    run(*found(fleet, "eventual-update").commands)
    until(lambda: finding.name not in {each.name for each in diagnosed(fleet)})
    fleet.up()
    assert_cured(fleet, jobs=0)


def eventual(fleet: Real, strategy: str) -> bool:
    """Whether the only pods of the controller have this strategy."""
    pods = [each for each in fleet.listed(("v1", "Pod")) if each["metadata"]["name"].startswith(CONTROLLER)]
    return bool(pods) and all(
        f"--update-strategy={strategy}" in each["spec"]["containers"][0]["args"]
        and each["status"].get("phase") == "Running"
        for each in pods
    )


def test_the_scale_set_was_deleted_at_github(fleet: Real) -> None:
    before = fleet.github.call("state")["scaleSets"][SECOND]["id"]
    fleet.github.call("delete-scale-set", label=SECOND)
    finding = found(fleet, "unknown-scale-set")
    assert f"GitHub has no scale set {before}" in finding.fact
    run(*finding.commands)
    assert_cured(fleet, jobs=1)
    assert fleet.github.call("state")["scaleSets"][SECOND]["id"] != before


def test_a_rotated_key_did_not_reach_the_listener(fleet: Real) -> None:
    credentials = len(fleet.github.call("state")["credentials"])
    fleet.apply(new_secret(fleet))
    finding = found(fleet, "rotated-key")
    time.sleep(10)
    assert len(fleet.github.call("state")["credentials"]) == credentials, "nobody has noticed"
    run(*finding.commands)
    until(lambda: len(fleet.github.call("state")["credentials"]) == credentials + 1)
    until_nothing_is_found(fleet)
    fleet.github.call("revoke-key", namespace=NAMESPACE, secret=SECRET, owner=NAMESPACE, current=False)
    assert_cured(fleet, jobs=1)


def test_the_key_was_revoked_before_it_was_replaced(fleet: Real) -> None:
    fleet.github.call("revoke-key", namespace=NAMESPACE, secret=SECRET, owner=NAMESPACE, current=True)
    finding = found(fleet, "invalid-credentials")
    assert finding.commands[-1] == "pulumi up --stack mi300"
    # What it does once the stack has the new key.
    fleet.apply(new_secret(fleet))
    assert_cured(fleet, jobs=1)


def test_the_controller_is_stopped_while_a_scale_set_is_deleted(fleet: Real) -> None:
    kubectl(fleet, f"scale deployment -n {SYSTEM} {CONTROLLER} --replicas=0")
    until(lambda: not any(CONTROLLER in each["metadata"]["name"] for each in fleet.listed(("v1", "Pod"))))
    fleet.github.call("end", label=SECOND, count=None, result="succeeded")
    kubectl(fleet, f"delete autoscalingrunnerset -n {NAMESPACE} --wait=false {SECOND}")
    finding = found(fleet, "controller-stopped", "controller")
    assert SECOND in finding.consequence
    run(*finding.commands)
    until(lambda: fleet.scale_set(SECOND) is None)
    assert found(fleet, "scale-set-missing").commands == ("pulumi up --stack mi300 --refresh",)


def test_the_controller_is_gone_for_good(fleet: Real) -> None:
    fleet.github.call("end", label=SECOND, count=None, result="succeeded")
    until(lambda: fleet.jobs(SECOND, "running") == 0)
    kubectl(fleet, f"delete deployment -n {SYSTEM} {CONTROLLER}")
    kubectl(fleet, f"delete autoscalingrunnerset -n {NAMESPACE} --wait=false {SECOND}")
    finding = found(fleet, "waiting-finalizers", "leftovers")
    run(*finding.commands)
    for kind in ("AutoscalingRunnerSet", "AutoscalingListener", "EphemeralRunnerSet", "EphemeralRunner"):
        until(lambda kind=kind: SECOND not in str(fleet.listed(("actions.github.com/v1alpha1", kind))))


def test_runners_that_are_too_old(fleet: Real) -> None:
    fleet.github.call("deprecate-runners", label=FIRST)
    fleet.github.call("queue", label=FIRST, count=2, seconds=None)
    finding = found(fleet, "outdated", FIRST)
    assert finding.commands == ("pulumi up --stack mi300",)
    fleet.github.call("end", label=FIRST, count=None, result="succeeded")
    image = re.search(r"image: (ghcr.io/saienduri/ghascale-rocm-dev):main", MI300)
    assert image
    fleet.up(MI300.replace(image[0], f"image: {image[1]}:newer"), linux_mi300_gpu_2=1)
    until_nothing_is_found(fleet)
    until(lambda: fleet.jobs(FIRST, "running") == 1)
