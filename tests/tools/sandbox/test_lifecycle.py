"""`gpufleet sandbox`, as its user runs it: whole processes against a real control plane."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import api_server

ROOT = Path(__file__).parents[3]
MI300 = (ROOT / "Pulumi.mi300.yaml").read_text()
NEW_RUNNER = """
    linux-mi300-gpu-1:
      project: pytorch
      profile: pytorch
      gpus: 1
      cpu: 20
      memory: 200Gi
      min: 1
      max: 1
      docker: true
"""
SMALL = re.sub(r"( {4}mi300-cluster:\n(?: {6}.*\n)+)", "", MI300)


@dataclass(frozen=True)
class Checkout:
    """A project folder of its own, with a sandbox of its own."""

    folder: Path
    environment: dict[str, str]
    stack: str = "mi300"
    patience: float = 180

    @property
    def stack_file(self) -> Path:
        return self.folder / f"Pulumi.{self.stack}.yaml"

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
            [*command, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=self.patience)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def checkout(built: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout whose sandbox is ended when the module is done."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "components", "stacks"):
        (folder / name).symlink_to(ROOT / name)
    state = tmp_path_factory.mktemp("state")
    made = Checkout(folder, os.environ | {"XDG_STATE_HOME": str(state)})
    made.stack_file.write_text(MI300)
    yield made
    made.run("down", "mi300")


@pytest.fixture
def up(checkout: Checkout) -> Checkout:
    """The committed stack, up."""
    checkout.stack_file.write_text(MI300)
    code, out, err = checkout.run("up", "mi300")
    assert code == 0, err or out
    return checkout


def row(output: str, start: str) -> list[str]:
    """The cells of the last table row that begins with a word."""
    return [line for line in output.splitlines() if line.startswith(f"{start} ")][-1].split()


def test_up_again_changes_nothing_and_says_so(up: Checkout) -> None:
    code, out, _ = up.run("up", "mi300")
    assert code == 0
    assert out.splitlines()[-1] == "nothing changed: 9 runner pods running"


def test_table_shows_gpus_and_runners(up: Checkout) -> None:
    code, out, _ = up.run("status", "mi300")
    assert code == 0
    assert row(out, "linux-mi300-gpu-2")[1:] == ["2", "1", "6", "3", "4", "0"]
    assert row(out, "mi300-cluster")[1:] == ["1", "1", "8", "4", "5", "0"]
    used = re.findall(r"^mi300x-\S+ +mi300x +yes +(\d+) of 8 ", out, re.MULTILINE)
    assert len(used) == 3
    assert sum(map(int, used)) == 4 * 2 + 5
    assert "DaemonSet amd-gpu-device-plugin  3 of 3 pods ready" in out
    assert "Helm release arc                 not installed" in out


def test_new_label_shows_up_and_goes_again(up: Checkout) -> None:
    up.stack_file.write_text(MI300.replace("    mi300-cluster:", f"{NEW_RUNNER}    mi300-cluster:", 1))
    code, out, err = up.run("up", "mi300")
    assert code == 0, err
    assert row(out, "linux-mi300-gpu-1") == ["linux-mi300-gpu-1", "1", "1", "1", "0", "1", "0"]
    assert out.splitlines()[-1].startswith("2 objects created: ")
    up.stack_file.write_text(MI300)
    code, out, _ = up.run("up", "mi300")
    assert out.splitlines()[-1] == "2 objects removed: 9 runner pods running"
    assert "linux-mi300-gpu-1" not in out


def test_runners_of_a_runtime_class_start_and_take_it_along(up: Checkout) -> None:
    """The API server refuses a pod whose RuntimeClass does not exist."""
    up.stack_file.write_text(
        MI300.replace("    pytorch:\n      image:", "    pytorch:\n      runtimeClass: gpu\n      image:")
    )
    code, out, err = up.run("up", "mi300")
    assert code == 0, err
    # The class, and another Job for the one label of the profile.
    assert out.splitlines()[-1] == "2 objects created, 1 object removed: 9 runner pods running"
    up.stack_file.write_text(MI300)
    code, out, err = up.run("up", "mi300")
    assert code == 0, err
    assert out.splitlines()[-1] == "1 object created, 2 objects removed: 9 runner pods running"


def test_removed_project_takes_its_namespace_along(up: Checkout) -> None:
    without = re.sub(r"( {4}# The App's private key(?:.*\n)+?)(?=  gpu-runners:profiles)", "", SMALL)
    up.stack_file.write_text(without)
    code, _out, err = up.run("up", "mi300")
    assert code == 0, err
    kubeconfig = Path(up.run("kubeconfig", "mi300")[1].strip())
    (namespaces,) = api_server.listed(kubeconfig, ("v1", "Namespace"))
    assert "gpu-test-cluster" not in {namespace["metadata"]["name"] for namespace in namespaces}


def test_jobs_beyond_max_wait_at_github_and_pods_beyond_the_nodes_are_pending(up: Checkout) -> None:
    code, out, _ = up.run("up", "mi300", "--jobs", "linux-mi300-gpu-2=100", "--jobs", "mi300-cluster=2")
    assert code == 0
    assert row(out, "linux-mi300-gpu-2")[5:7] == ["6", "0"]
    up.stack_file.write_text(MI300.replace("max: 6", "max: 10"))
    code, out, _ = up.run("up", "mi300", "--jobs", "linux-mi300-gpu-2=100")
    assert code == 1
    cells = row(out, "linux-mi300-gpu-2")
    # Two nodes have the label, with four such runners each at the most.
    assert int(cells[5]) + int(cells[6]) == 10
    assert int(cells[6]) >= 2
    assert "Insufficient amd.com/gpu" in out


def test_unknown_jobs_are_refused_before_anything_is_done(up: Checkout) -> None:
    code, _out, err = up.run("up", "mi300", "--jobs", "linux-mi300-gpu-3=1", "--jobs", "mi300-cluster")
    assert code == 2
    assert err.splitlines() == [
        "gpufleet: --jobs linux-mi300-gpu-3=1: there is no label 'linux-mi300-gpu-3'; "
        "did you mean 'linux-mi300-gpu-2'?",
        "gpufleet: --jobs mi300-cluster: is not LABEL=N, where N is a number of jobs",
    ]


def test_preview_yaml_is_taken_by_the_server(up: Checkout, built: Binaries) -> None:
    command = [
        sys.executable,
        "-c",
        "from gpufleet_tools.cli import main; main()",
        "-C",
        str(up.folder),
        "preview",
        "mi300",
    ]
    manifests = subprocess.run([*command, "--format", "yaml"], capture_output=True, text=True, check=False).stdout
    kubeconfig = up.run("kubeconfig", "mi300")[1].strip()
    taken = subprocess.run(
        [built.path("kubectl"), "--kubeconfig", kubeconfig, "apply", "--dry-run=server", "--filename=-"],
        input=manifests,
        capture_output=True,
        text=True,
        check=False,
        env=up.environment | {"KUBECACHEDIR": str(up.folder / "kubectl")},
    )
    assert taken.returncode == 0, taken.stderr
    assert taken.stdout.count("(server dry run)") == len(re.findall("^apiVersion: ", manifests, re.MULTILINE))


def test_pods_are_exactly_what_the_chart_is_given(up: Checkout) -> None:
    kubeconfig = Path(up.run("kubeconfig", "mi300")[1].strip())
    (pods,) = api_server.listed(kubeconfig, ("v1", "Pod"))
    label = "actions.github.com/scale-set-name"
    pod = next(pod for pod in pods if pod["metadata"]["labels"].get(label) == "linux-mi300-gpu-2")
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"pytorch": "yes"}
    assert spec["securityContext"] == {"supplementalGroups": [110]}
    assert [container["name"] for container in spec["initContainers"]] == ["init-dind-externals", "dind"]
    assert spec["containers"][0]["resources"]["requests"]["amd.com/gpu"] == "2"
    assert spec["restartPolicy"] == "Never"
    assert spec["serviceAccountName"] == "linux-mi300-gpu-2-gha-rs-no-permission"


def test_down_twice(checkout: Checkout) -> None:
    checkout.stack_file.write_text(MI300)
    assert checkout.run("up", "mi300")[0] == 0
    assert checkout.run("down", "mi300")[:2] == (0, "the sandbox of mi300 was removed\n")
    assert checkout.run("down", "mi300")[:2] == (0, "the sandbox of mi300 is not running; nothing to do\n")
    assert list(Path(checkout.environment["XDG_STATE_HOME"], "gpufleet").glob("mi300-*/")) == []
    for action in ("status", "kubeconfig"):
        code, out, err = checkout.run(action, "mi300")
        assert (code, out) == (2, "")
        assert err == "gpufleet: the sandbox of mi300 is not running; start it: gpufleet sandbox up mi300\n"


@pytest.mark.slow
def test_killed_at_any_moment_the_next_up_ends_running(checkout: Checkout) -> None:
    """Killed after every second of a run from nothing, until a run gets through."""
    checkout.stack_file.write_text(SMALL)
    for seconds in range(1, 60):
        checkout.run("down", "mi300")
        process = checkout.start("up", "mi300")
        try:
            process.communicate(timeout=seconds)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        code, out, err = checkout.run("up", "mi300")
        assert code == 0, f"after a kill at {seconds} s: {err or out}"
        assert out.splitlines()[-1].endswith(": 4 runner pods running")
    assert process.returncode == 0


def listening(address: str) -> socket.socket:
    """A server at that address that answers nobody, and can be asked whether somebody came."""
    server = socket.create_server((address, 0))
    server.setblocking(False)
    return server


def came(server: socket.socket) -> bool:
    """Whether somebody has connected, or was about to."""
    try:
        connection, _ = server.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def test_nobody_connects_to_a_declared_machine(checkout: Checkout) -> None:
    """The machines are this one, and listen where the stack file says."""
    checkout.run("down", "mi300")
    servers = [listening(f"127.0.0.{number}") for number in (11, 12, 21)]
    text = MI300
    for address, server in zip(("192.0.2.11", "192.0.2.12", "198.51.100.21"), servers, strict=True):
        here, port = server.getsockname()
        text = text.replace(f"address: {address}\n", f"address: {here}\n            port: {port}\n")
    assert text.count("address: 127.0.0.") == 3
    checkout.stack_file.write_text(text)
    code, out, err = checkout.run("up", "mi300")
    assert code == 0, err or out
    assert "KubesprayCluster mi300           not run: the sandbox is the cluster" in out
    assert [came(server) for server in servers] == [False] * 3
    for server in servers:
        with socket.create_connection(server.getsockname()):
            assert came(server)
        server.close()
