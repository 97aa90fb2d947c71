"""The whole MI300 stack through Pulumi's real engine, with ARC's real charts, into the sandbox's API server.

They run where `pulumi` and its kubernetes plugin are on PATH and GPUFLEET_CHARTS names a folder with ARC's charts.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import STAND_IN
from gpufleet_tools.sandbox import lifecycle
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane import api_server, processes
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.rehearsal import CHARTS, Rehearsal

ROOT = Path(__file__).parents[2]
PLUGINS = ("pulumi", "pulumi-language-python", "pulumi-resource-kubernetes")
MISSING = [name for name in PLUGINS if shutil.which(name) is None] + [CHARTS] * (CHARTS not in os.environ)

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing")

PATIENCE = 200.0
"""Seconds that an `up` has to come to a moment; it takes 20 to 40."""


@dataclass
class Checkout:
    """A project folder of its own, rehearsed in a state directory of its own."""

    folder: Path
    state: Path
    printed: str = field(default="")

    @property
    def stack_file(self) -> Path:
        return self.folder / "Pulumi.mi300.yaml"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-c",
            "from gpufleet_tools.cli import main; main()",
            "-C",
            str(self.folder),
            "sandbox",
        ]
        return subprocess.Popen(
            [*command, *arguments, "mi300", "--engine", "pulumi"],
            env=os.environ | {"XDG_STATE_HOME": str(self.state)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> str:
        process = self.start(*arguments)
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, printed
        return printed

    def rehearsal(self) -> Rehearsal:
        read = stack.read(self.folder, "mi300")
        return Rehearsal(read, lifecycle.rehearsal_control_plane(read, binaries.find()))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The committed stack, brought up by the engine once."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "components", "stacks"):
        (folder / name).symlink_to(ROOT / name)
    made = Checkout(folder, tmp_path_factory.mktemp("state"))
    made.stack_file.write_text((ROOT / "Pulumi.mi300.yaml").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(made.state))
        made.printed = made.run("up")
        yield made
        lifecycle.down(made.folder, "mi300")


def operations(rehearsal: Rehearsal) -> dict[str, str]:
    """What a preview would do to each resource, by URN, sameness and lookups left out."""
    rehearsal.prepare()
    steps: list[dict[str, Any]] = json.loads(rehearsal.pulumi("preview", "--json", quiet=True))["steps"]
    return {step["urn"]: step["op"] for step in steps if step["op"] not in ("same", "read")}


def test_up_creates_everything(checkout: Checkout) -> None:
    plan = stack.read(checkout.folder, "mi300").plan()
    created = re.search(r"\+ (\d+) created", checkout.printed)
    assert created
    # The stack itself is a resource too; nothing is done on machines.
    on_machines = [each for each in plan.owned() if "command" in each.type or each.type.endswith(":KubesprayCluster")]
    assert on_machines
    assert int(created[1]) == len(list(plan.owned())) - len(on_machines) + 1
    assert checkout.printed.splitlines()[-1].endswith("9 runner pods running")
    kubeconfig = checkout.rehearsal().control_plane.kubeconfig
    # The commands without --engine reach it too.
    read = stack.read(checkout.folder, "mi300")
    assert lifecycle.running(read).kubeconfig == kubeconfig
    status = lifecycle.status(read)
    assert (status.installed, status.runs_arc, status.state.running) == (True, False, 9)
    (scale_sets,) = api_server.listed(kubeconfig, ("actions.github.com/v1alpha1", "AutoscalingRunnerSet"))
    sizes = {item["metadata"]["name"]: (item["spec"]["minRunners"], item["spec"]["maxRunners"]) for item in scale_sets}
    assert sizes == {"linux-mi300-gpu-2": (1, 6), "mi300-cluster": (1, 8)}


def test_second_up_changes_nothing(checkout: Checkout) -> None:
    assert operations(checkout.rehearsal()) == {}
    printed = checkout.run("up")
    assert not re.search(r"\d+ (created|updated|replaced|deleted)", printed)
    assert printed.splitlines()[-1] == "nothing changed: 9 runner pods running"


def test_changed_max_updates_one_scale_set(checkout: Checkout) -> None:
    text = checkout.stack_file.read_text()
    checkout.stack_file.write_text(text.replace("max: 6", "max: 5"))
    changes = operations(checkout.rehearsal())
    checkout.stack_file.write_text(text)
    assert [(urn.rpartition("::")[2], operation) for urn, operation in changes.items()] == [
        ("linux-mi300-gpu-2", "update")
    ]


def test_a_rotated_key_is_written_in_place(checkout: Checkout) -> None:
    rehearsal = checkout.rehearsal()
    rehearsal.prepare()
    before = credentials(rehearsal)
    rehearsal.pulumi("config", "set", "--secret", "gpu-test-cluster-privateKey", stdin="rotated", quiet=True)
    # The Secret, and an annotation of the project's one listener.
    changed = {urn.rpartition("::")[2]: operation for urn, operation in operations(rehearsal).items()}
    assert changed == {"gpu-test-cluster-credentials": "update", "mi300-cluster": "update"}
    rehearsal.pulumi("up", "--yes", "--skip-preview", quiet=True)
    after = credentials(rehearsal)
    assert base64.b64decode(after["data"]["github_app_private_key"]).decode() == "rotated"
    # A Secret that was deleted and created again would have another identity.
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    # The tests below expect the stand-in.
    rehearsal.pulumi("config", "set", "--secret", "gpu-test-cluster-privateKey", stdin=STAND_IN, quiet=True)
    rehearsal.pulumi("up", "--yes", "--skip-preview", quiet=True)


def credentials(rehearsal: Rehearsal) -> dict[str, Any]:
    """The Secret with which the project's runners register."""
    (secrets,) = api_server.listed(rehearsal.control_plane.kubeconfig, ("v1", "Secret"))
    (found,) = (each for each in secrets if each["metadata"]["name"] == "pre-defined-rocm-secret")
    return dict(found)


def test_state_holds_no_secret_in_plain_text(checkout: Checkout) -> None:
    rehearsal = checkout.rehearsal()
    exported = rehearsal.pulumi("stack", "export", quiet=True)
    assert "gpu-test-cluster-credentials" in exported
    key = re.search(r"client-key-data: (\S+)|client-key: (\S+)", rehearsal.control_plane.kubeconfig.read_text())
    assert key
    plain = [STAND_IN, base64.b64encode(STAND_IN.encode()).decode(), key[1] or key[2]]
    for file in (rehearsal.folder / "state").rglob("*"):
        if file.is_file():
            exported += file.read_text(errors="replace")
    assert [text for text in plain if text in exported] == []


def test_committed_stack_file_is_not_touched(checkout: Checkout) -> None:
    assert checkout.stack_file.read_text() == (ROOT / "Pulumi.mi300.yaml").read_text()
    assert sorted(path.name for path in checkout.folder.iterdir()) == [
        "Pulumi.mi300.yaml",
        "Pulumi.yaml",
        "components",
        "stacks",
    ]


def test_up_without_a_secret_is_refused_in_one_line(checkout: Checkout) -> None:
    rehearsal = checkout.rehearsal()
    rehearsal.prepare()
    rehearsal.pulumi("config", "rm", "gpu-test-cluster-privateKey", quiet=True)
    refused = subprocess.run(
        ["pulumi", "preview", "--non-interactive", "--cwd", str(rehearsal.folder)],
        env=rehearsal.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    rehearsal.prepare()
    assert refused.returncode != 0
    printed = refused.stdout + refused.stderr
    assert "Traceback" not in printed
    assert (
        "projects.gpu-test-cluster.credentials: the secret 'gpu-test-cluster-privateKey' is not set; set it: "
        "pulumi config set --secret gpu-runners:gpu-test-cluster-privateKey"
    ) in printed


def test_destroy_leaves_nothing_in_the_right_order(checkout: Checkout) -> None:
    checkout.run("up")
    rehearsal = checkout.rehearsal()
    kubeconfig = rehearsal.control_plane.kubeconfig
    with lifecycle.arc_stand_in.simulated(kubeconfig):
        printed = rehearsal.pulumi("destroy", "--yes", "--skip-preview", quiet=True)
    # A deletion ends when its line says so.
    ended = re.findall(r"^ -  (\S+) (\S+) deleted", printed, re.MULTILINE)
    place = {(kind.rpartition(":")[2], name): index for index, (kind, name) in enumerate(ended)}
    for label in ("linux-mi300-gpu-2", "mi300-cluster"):
        assert place["Release", label] < place["Release", "arc"]
    assert place["Release", "mi300-cluster"] < place["Secret", "gpu-test-cluster-credentials"]
    assert place["Secret", "gpu-test-cluster-credentials"] < place["Namespace", "gpu-test-cluster-namespace"]
    assert place["Release", "arc"] < place["Namespace", "arc-namespace"]
    namespaces, secrets, roles = api_server.listed(
        kubeconfig, ("v1", "Namespace"), ("v1", "Secret"), ("rbac.authorization.k8s.io/v1", "Role")
    )
    assert {"arc-systems", "gpu-test-cluster"}.isdisjoint(item["metadata"]["name"] for item in namespaces)
    # What the project's owners made themselves is still theirs.
    assert "pytorch-secret" in {item["metadata"]["name"] for item in secrets}
    assert [role["metadata"]["name"] for role in roles if role["metadata"]["namespace"] == "pytorch"] == []
    checkout.run("down")


def at_helm_record(release: str, status: str) -> Callable[[Path], None]:
    """Waits until Helm has written that it is at work on a release, in the cluster of a kubeconfig."""

    def wait(kubeconfig: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            # The control plane of an `up` that has just begun does not answer yet.
            with contextlib.suppress(SandboxError), api_server.connected(kubeconfig) as api:
                secrets = api.resource({"apiVersion": "v1", "kind": "Secret"})
                while time.monotonic() < deadline:
                    if api.by_label(secrets, f"owner=helm,name={release},status={status}"):
                        return
                    time.sleep(0.01)
            time.sleep(0.1)
        pytest.fail(f"{release} was never {status}")

    return wait


def killed(checkout: Checkout, moment: Callable[[Path], None], *, with_plugins: bool) -> None:
    """An `up` that ends with its engine at that moment, and has no time for anything. Its plugins live on for a while
    and end what they are about, unless they are killed too, as where the machine goes down."""
    rehearsal = checkout.rehearsal()
    process = checkout.start("up")
    moment(rehearsal.control_plane.kubeconfig)
    os.killpg(process.pid, signal.SIGKILL)
    if with_plugins:
        assert processes.kill_with("PULUMI_BACKEND_URL", rehearsal.backend, "pulumi-")
    process.communicate()


@pytest.mark.slow
def test_killed_before_helm_the_next_up_converges(checkout: Checkout) -> None:
    lifecycle.down(checkout.folder, "mi300")
    killed(checkout, lambda _: time.sleep(8), with_plugins=False)
    checkout.run("up")
    assert operations(checkout.rehearsal()) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "with_plugins"),
    [("arc-systems/arc", False), ("arc-systems/arc", True), ("gpu-test-cluster/mi300-cluster", True)],
)
def test_killed_while_helm_installs_the_next_up_converges(checkout: Checkout, release: str, with_plugins: bool) -> None:
    lifecycle.down(checkout.folder, "mi300")
    killed(checkout, at_helm_record(release.partition("/")[2], "pending-install"), with_plugins=with_plugins)
    # Helm may have ended between the look and the kill, and the engine have written so.
    unknown = release not in checkout.rehearsal().releases()
    refused = checkout.start("down").communicate(timeout=120)[0] if unknown else ""
    assert ("bring the stack up again first" in refused) == unknown
    assert (f"Helm release {release}: " in checkout.run("up")) == unknown
    assert operations(checkout.rehearsal()) == {}


@pytest.mark.slow
def test_killed_while_a_scale_set_changes_the_next_up_converges(checkout: Checkout) -> None:
    checkout.run("up")
    text = checkout.stack_file.read_text()
    checkout.stack_file.write_text(text.replace("max: 6", "max: 5"))
    killed(checkout, at_helm_record("linux-mi300-gpu-2", "pending-upgrade"), with_plugins=True)
    kubeconfig = checkout.rehearsal().control_plane.kubeconfig
    with api_server.connected(kubeconfig) as api:
        # As above: Helm may have ended all the same.
        left = api.by_label(api.resource({"apiVersion": "v1", "kind": "Secret"}), "owner=helm,status=pending-upgrade")
    assert ("linux-mi300-gpu-2: pending-upgrade when" in checkout.run("up")) == bool(left)
    assert operations(checkout.rehearsal()) == {}
    (scale_sets,) = api_server.listed(kubeconfig, ("actions.github.com/v1alpha1", "AutoscalingRunnerSet"))
    assert {item["spec"]["maxRunners"] for item in scale_sets} == {5, 8}
    checkout.stack_file.write_text(text)
