"""`gpufleet maintenance` with a real API server and real SSH servers: its steps and refusals, and kills at any step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpufleet_tools.sandbox.control_plane import objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests.conftest import MakeProject
from tests.hosts import maintained
from tests.hosts.base_layer import BaseLayer
from tests.hosts.maintained import GPUS, LABEL, NAMESPACE, Fleet, until
from tests.hosts.namespaces import Hosts
from tests.hosts.test_declared_hosts import entry, identity_of
from tests.tools.sandbox.conftest import built, control_plane

__all__ = ["built", "control_plane"]

pytestmark = pytest.mark.slow

STACK = """
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: lab
    kubeconfig: {kind: context, context: lab}
    ssh: %(ssh)s
    nodePools:
      mi300x:
        accelerator: {vendor: amd, model: MI300X, count: 8}
        allocatable: {cpu: 190, memory: 2200Gi, ephemeralStorage: 3400Gi}
        nodes:
%(nodes)s
  gpu-runners:projects:
    ml:
      configUrl: https://github.com/example
      namespace: ml
      credentials: {kind: existingSecret, secretName: ml-github}
  gpu-runners:profiles:
    rocm: {pool: mi300x}
  gpu-runners:runners:
    linux-mi300-gpu-1: {project: ml, profile: rocm, gpus: 1, cpu: 16, memory: 200Gi, min: 0, max: 16}
"""

NODE, OTHER = "node-1", "node-2"
"""The machine under maintenance, and the other one of its pool."""


@dataclass
class Command:
    """The command on one machine of a fleet."""

    root: Path
    arguments: list[str]
    fleet: Fleet

    def start(self, *options: str, node: str = NODE) -> subprocess.Popen[str]:
        program = Path(sys.executable).with_name("gpufleet")
        command = [str(program), "-C", str(self.root), "maintenance", "lab", node]
        return subprocess.Popen(
            [*command, *self.arguments, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __call__(self, *options: str, node: str = NODE, code: int = 0) -> list[str]:
        """Run it, and return its lines without the time."""
        with self.start(*options, node=node) as process:
            out, _ = process.communicate(timeout=120)
            assert process.returncode == code, out
        return [line[9:] if line[2:3] == ":" else line for line in out.splitlines()]

    def killed_at(self, words: str, *options: str) -> None:
        """Run it, and kill it as soon as it prints a line with these words."""
        with self.start(*options) as process:
            assert process.stdout
            seen = []
            for line in process.stdout:
                seen.append(line)
                if words in line:
                    process.kill()
                    return
            pytest.fail(f"it never printed {words!r}: {''.join(seen)}")


@pytest.fixture(scope="module")
def machines(host_layer: BaseLayer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """One machine, and a bastion before it."""
    with Hosts(tmp_path_factory.mktemp("maintained"), host_layer) as hosts:
        maintained.start_machine(hosts, NODE)
        hosts.start("bastion")
        yield hosts


@pytest.fixture
def fleet(machines: Hosts, control_plane: ControlPlane) -> Iterator[Fleet]:
    """Two nodes that are ready; the second is no host."""
    host = machines.started[NODE]
    host.path("/var/log/stand-ins/systemctl").unlink(missing_ok=True)
    host.path("/srv/ends-connections").unlink(missing_ok=True)
    made = Fleet(control_plane.kubeconfig, {NODE: host})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    objects.apply(made.kubeconfig, [maintained.DEFINITION, namespace], "t")
    for name in (NODE, OTHER):
        made.add_node(name, labels={"kubernetes.io/hostname": name})
    yield made
    made.clear()


@pytest.fixture
def command(fleet: Fleet, machines: Hosts, project: MakeProject, tmp_path: Path) -> Command:
    host, jump = machines.started[NODE], machines.started["bastion"]
    bastion = {"name": "bastion", "address": jump.address, "hostKeys": [jump.host_key]}
    other = f"          {OTHER}: {{address: 192.0.2.1, hostKeys: [{maintained.OTHER_KEY}]}}"
    nodes = f"{entry(host)}\n{other}"
    root = project({"lab": STACK % {"ssh": json.dumps({"user": "ci", "jump": bastion}), "nodes": nodes}})
    options = ["--identity", str(identity_of(machines, tmp_path)), "--kubeconfig", str(fleet.kubeconfig)]
    return Command(root, options, fleet)


def fill(fleet: Fleet) -> None:
    """Every kind of pod on the node: an idle runner, a busy one, one of a Deployment, one of a DaemonSet."""
    maintained.add_workloads(fleet, NODE)
    fleet.add_runner("idle", NODE)
    fleet.add_runner("busy", NODE, job="job-1")
    fleet.add_runner("elsewhere", OTHER)
    until(lambda: {"listener", "plugin", "idle", "busy"} <= fleet.workloads(NODE), "the node to be full")


def test_the_plan_has_the_commands_and_changes_nothing(command: Command, fleet: Fleet) -> None:
    fill(fleet)
    before = fleet.node(NODE)["metadata"]["resourceVersion"]
    lines = command("--reboot")
    text = "\n".join(lines)
    assert lines[0] == f"{NODE}: pool mi300x, 8 amd.com/gpu, boot ID {fleet.boot_id(NODE)}"
    assert "  2. delete idle runners: 1 now; ARC starts others elsewhere" in lines
    assert "delete ephemeralrunner -n ml --wait=false idle" in text
    assert "  3. wait until runners with a job have ended: 1 now" in lines
    assert f"ssh -J ci@{command_address(command)}" in text
    assert text.count(f"$ kubectl --kubeconfig {fleet.kubeconfig}") == 6
    assert lines[-1] == "gpufleet does these steps with --run"
    assert fleet.node(NODE)["metadata"]["resourceVersion"] == before


def command_address(command: Command) -> str:
    text = (command.root / "Pulumi.lab.yaml").read_text()
    return text.split('"address": "')[1].split('"')[0]


def test_a_machine_reboots_without_the_loss_of_a_job(command: Command, fleet: Fleet) -> None:
    fill(fleet)
    boot = fleet.boot_id(NODE)
    with fleet.alive(), command.start("--reboot", "--run", "--why", "new firmware") as process:
        until(lambda: "idle" not in fleet.runners(), "the idle runner to be deleted")
        until(lambda: fleet.is_cordoned(NODE), "the cordon")
        mark = json.loads(fleet.mark(NODE) or "{}")
        assert (mark["why"], mark["bootId"]) == ("new firmware", boot)
        time.sleep(3)
        # Nothing else happens while a job runs.
        assert {"busy", "listener", "plugin"} <= fleet.workloads(NODE)
        assert fleet.reboots(NODE) == 0
        fleet.end_job("busy")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert [line[9:] for line in out.splitlines() if " waits " not in line] == [
        "cordoned",
        "deletes the idle runner ml/idle",
        "the node is free: no runner, and no pod that would be lost",
        "reboots the machine",
        "the machine has booted",
        "uncordoned",
    ]
    assert "waits for 1 runner with a job: ml/busy" in out
    assert fleet.reboots(NODE) == 1
    assert fleet.boot_id(NODE) != boot
    assert not fleet.is_cordoned(NODE)
    assert fleet.mark(NODE) is None
    assert "elsewhere" in fleet.runners()
    # The real scheduler has placed the Deployment's pod on the other node.
    until(lambda: "listener" in fleet.workloads(OTHER), "the evicted pod on the other node")


STEPS = (
    "cordoned",
    "deletes the idle runner",
    "waits for",
    "the node is free",
    "reboots the machine",
    "waits until the machine has booted",
    "the machine has booted",
    "waits until the node is ready",
    "waits for 8 amd.com/gpu: the node offers 0",
)
"""Beginnings of lines at which a run is killed."""


@pytest.mark.parametrize("words", STEPS)
def test_a_run_that_was_killed_goes_on(command: Command, fleet: Fleet, words: str) -> None:
    fleet.add_runner("idle", NODE)
    fleet.add_runner("busy", NODE, job="job-1")
    fleet.boot_seconds = 4
    with fleet.alive():
        if words in STEPS[3:]:
            fleet.end_job("busy")
        command.killed_at(words, "--reboot", "--run")
        assert fleet.is_cordoned(NODE)
        fleet.end_job("busy")
        lines = command("--reboot", "--run")
    assert [line for line in lines if line.startswith("continues the maintenance that ")]
    assert lines[-1] == "uncordoned"
    assert fleet.reboots(NODE) == 1
    assert fleet.runners() == set()
    assert fleet.mark(NODE) is None


def test_a_runner_that_gets_a_job_at_the_last_moment_keeps_it(command: Command, fleet: Fleet) -> None:
    """ARC knows nothing of the job yet, but GitHub does: it refuses to remove the runner."""
    fleet.add_runner("idle", NODE)
    fleet.busy_at_github.add("idle")
    with fleet.alive(), command.start("--reboot", "--run") as process:
        assert process.stdout
        assert any("waits for 1 runner that ARC ends: ml/idle" in line for line in process.stdout)
        time.sleep(3)
        assert "idle" in fleet.workloads(NODE)
        assert fleet.reboots(NODE) == 0
        fleet.end_job("idle")
        assert process.wait(60) == 0
    assert fleet.reboots(NODE) == 1


def test_connections_that_end_with_the_machine_are_no_failure(command: Command, fleet: Fleet) -> None:
    (fleet.hosts[NODE].path("/srv/ends-connections")).touch()
    with fleet.alive():
        assert command("--reboot", "--run")[-1] == "uncordoned"
    assert fleet.reboots(NODE) == 1


def test_missing_gpus_keep_the_node_cordoned(command: Command, fleet: Fleet) -> None:
    fleet.offered = GPUS - 1
    with fleet.alive():
        lines = command("--reboot", "--run", "--minutes", "0.1", code=1)
    assert lines[-1] == (
        "stopped: waits for 8 amd.com/gpu: the node offers 7; not finished within 0.1 min; run again to continue"
    )
    assert fleet.is_cordoned(NODE)


def test_work_by_hand_ends_with_finish(command: Command, fleet: Fleet) -> None:
    fleet.add_runner("idle", NODE)
    with fleet.alive():
        assert command("--run")[-1] == "the node is free: no runner, and no pod that would be lost"
        assert fleet.is_cordoned(NODE)
        assert command("--finish", "--run") == ["uncordoned"]
    assert fleet.reboots(NODE) == 0


def test_a_node_that_somebody_else_cordoned_stays_cordoned(command: Command, fleet: Fleet) -> None:
    fleet.patch(f"/api/v1/nodes/{NODE}", {"apiVersion": "v1", "kind": "Node", "spec": {"unschedulable": True}})
    with fleet.alive():
        assert command("--reboot", "--run")[-1] == f"stays cordoned, by kubelet; to end that: kubectl uncordon {NODE}"
    assert fleet.is_cordoned(NODE)
    assert fleet.mark(NODE) is None


def test_a_node_that_is_uncordoned_meanwhile_is_not_rebooted(command: Command, fleet: Fleet) -> None:
    fleet.add_runner("busy", NODE, job="job-1")
    with fleet.alive(), command.start("--reboot", "--run") as process:
        assert process.stdout
        assert any("waits for 1 runner with a job" in line for line in process.stdout)
        # As kubectl uncordon does.
        fleet.merge(f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": None}})
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped: somebody uncordoned the node meanwhile" in out
    assert fleet.reboots(NODE) == 0


def test_another_machine_of_the_pool_is_away(command: Command, fleet: Fleet) -> None:
    fleet.patch(f"/api/v1/nodes/{OTHER}", {"apiVersion": "v1", "kind": "Node", "spec": {"unschedulable": True}})
    refused = f"refused: {OTHER} of pool mi300x is cordoned or not ready; one machine at a time (--allow pool)"
    alone = f"warning: {LABEL} has no other node; its jobs wait until {NODE} is back"
    assert command("--reboot", "--run", code=1) == [refused, alone]
    assert command("--reboot", code=1)[-3:] == [refused, alone, "gpufleet does these steps with --run"]
    assert not fleet.is_cordoned(NODE)
    with fleet.alive():
        assert command("--reboot", "--run", "--allow", "pool")[-1] == "uncordoned"


def test_the_wrong_machine_is_never_rebooted(command: Command, fleet: Fleet) -> None:
    fleet.report(NODE, boot_id="another", gpus=GPUS, ready=True)
    (line,) = command("--reboot", "--run", code=2)
    assert line.startswith(f"gpufleet: {NODE}: the machine at {fleet.hosts[NODE].address} has boot ID ")
    assert (fleet.is_cordoned(NODE), fleet.reboots(NODE)) == (False, 0)


@pytest.mark.parametrize(
    ("node", "message"),
    [("node-3", "no machine is named node-3; did you mean node-"), (OTHER, f"gpufleet: {OTHER}: ssh: ")],
)
def test_what_cannot_begin_changes_nothing(command: Command, fleet: Fleet, node: str, message: str) -> None:
    lines = command("--reboot", "--run", node=node, code=2)
    assert message in lines[-1]
    assert not fleet.is_cordoned(OTHER)
