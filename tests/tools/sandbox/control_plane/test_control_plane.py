"""The life of real control planes: made, left alone, harmed, interrupted, side by side, removed."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import daemons, processes
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane, cluster_name
from gpufleet_tools.sandbox.control_plane.objects import apply
from gpufleet_tools.sandbox.errors import SandboxError

ROOT = Path(__file__).parents[4]
COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller"}


@pytest.fixture
def own(tmp_path: Path, built: Binaries) -> Iterator[ControlPlane]:
    """A control plane of this test alone, not created yet."""
    control_plane = ControlPlane("own", tmp_path / "state" / "own", built)
    yield control_plane
    control_plane.down()


def up_elsewhere(control_plane: ControlPlane, **options: object) -> subprocess.Popen[bytes]:
    """`up` in another process."""
    code = (
        "from pathlib import Path; from gpufleet_tools.sandbox.build.binaries import Binaries\n"
        "from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane as C\n"
        f"C({control_plane.name!r}, Path({str(control_plane.directory)!r}),"
        f" Binaries(Path({str(control_plane.binaries.directory)!r}))).up()"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **options)  # type: ignore[call-overload,no-any-return]


def wait_for(condition: Callable[[], object], patience: float = 30.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def works(pid: int) -> bool:
    """Whether it is there and not a mere entry in the process table, which has no command line."""
    file = Path(f"/proc/{pid}/cmdline")
    return file.exists() and bool(file.read_bytes())


def listeners(pids: set[int]) -> dict[int, set[str]]:
    """What these processes listen on, as the kernel has it: id -> hexadecimal addresses, least byte first."""
    inodes: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A":
                inodes[columns[9]] = columns[1].split(":")[0]
    found: dict[int, set[str]] = {}
    for pid in pids:
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
        found[pid] = {inodes[inode] for inode in sockets & inodes.keys()}
    return found


def test_listens_on_loopback_and_on_nothing_else(control_plane: ControlPlane) -> None:
    control_plane.up()
    pids = control_plane.pids()
    assert set(pids.values()) == COMPONENTS
    found = listeners(set(pids))
    assert {pids[pid] for pid, addresses in found.items() if addresses} == COMPONENTS
    assert set().union(*found.values()) == {"0100007F"}, "127.0.0.1"


def test_the_kubeconfig_is_private_and_points_to_loopback(kubeconfig: Path) -> None:
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(kubeconfig.parent.stat().st_mode) == 0o700
    (cluster,) = yaml.safe_load(kubeconfig.read_text())["clusters"]
    assert cluster["cluster"]["server"].startswith("https://127.0.0.1:")


def test_a_second_up_changes_nothing(control_plane: ControlPlane) -> None:
    control_plane.up()
    before = control_plane.pids()
    assert control_plane.up() == "unchanged"
    assert control_plane.pids() == before


@pytest.mark.parametrize("killed", [{"kwok-controller"}, {"etcd", "kube-apiserver"}], ids=sorted)
def test_starts_what_was_killed_and_keeps_the_objects(control_plane: ControlPlane, killed: set[str]) -> None:
    control_plane.up()
    name = "-".join(sorted(killed))
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    apply(control_plane.kubeconfig, [kept], "control-plane")
    survivors = {pid: name for pid, name in control_plane.pids().items() if name not in killed}
    for pid, component in control_plane.pids().items():
        if component in killed:
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: control_plane.pids() == survivors)
    assert not control_plane.running()

    assert control_plane.up() == "started"
    assert set(control_plane.pids().values()) == COMPONENTS
    assert survivors.items() <= control_plane.pids().items()
    assert apply(control_plane.kubeconfig, [kept], "control-plane").unchanged == 1


def test_after_a_reboot_the_ids_of_others_are_left_alone(control_plane: ControlPlane) -> None:
    control_plane.up()
    written = list(control_plane.logs.with_name("pids").glob("*.pid"))
    assert len(written) == len(COMPONENTS)
    processes.kill(control_plane.directory)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        for file in written:
            file.write_text(str(bystander.pid))
        assert control_plane.up() == "started"
        assert set(control_plane.pids().values()) == COMPONENTS
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_is_made_anew_when_one_of_its_ports_is_taken(control_plane: ControlPlane) -> None:
    control_plane.up()
    port = int(control_plane.kubeconfig.read_text().split("https://127.0.0.1:")[1].split()[0])
    processes.kill(control_plane.directory)
    with socket.socket() as intruder:
        intruder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        intruder.bind(("127.0.0.1", port))
        intruder.listen()
        assert control_plane.up() == "created"
    assert control_plane.running()


@pytest.mark.parametrize("reached", ["pki/admin.key", "pids/etcd.pid"])
def test_heals_what_an_interrupted_up_left(own: ControlPlane, reached: str) -> None:
    with up_elsewhere(own) as first:
        wait_for((own.directory / "clusters" / "own" / reached).exists)
        first.kill()
    left = own.pids()
    assert own.up() == "created"
    assert set(own.pids().values()) == COMPONENTS
    assert not left.keys() & own.pids().keys()


def test_outlives_its_terminal_writes_nothing_to_home_and_is_gone_after_down(own: ControlPlane, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    terminal, end = pty.openpty()
    environment |= {"HOME": str(home), "KUBECONFIG": str(home / "config")}
    with up_elsewhere(own, stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True) as child:
        os.close(end)
        assert child.wait(timeout=120) == 0
    os.close(terminal)
    assert not list(home.iterdir())
    assert own.running()
    assert all(os.getsid(pid) != os.getsid(0) for pid in own.pids())

    alive = own.pids()
    assert own.down() is True
    assert own.down() is False
    assert not any(works(pid) for pid in alive)
    assert not list(own.directory.parent.iterdir())
    assert not own.running()


def test_two_checkouts_side_by_side_and_two_ups_at_once(tmp_path: Path, built: Binaries) -> None:
    names = [cluster_name(tmp_path / checkout, "mi300") for checkout in ("one", "two")]
    one, two = (ControlPlane(name, tmp_path / "state" / name, built) for name in names)
    try:
        with ThreadPoolExecutor() as pool:
            changes = list(pool.map(ControlPlane.up, [one, one, two]))
        assert sorted(changes) == ["created", "created", "unchanged"]
        assert one.running()
        assert two.running()
        apply(one.kubeconfig, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}], "one")
        assert "mine" in namespaces(one)
        assert "mine" not in namespaces(two)
        one.down()
        assert two.running()
    finally:
        one.down()
        two.down()


def namespaces(control_plane: ControlPlane) -> set[str]:
    kubectl = control_plane.binaries.path("kubectl")
    command = [
        str(kubectl),
        "--kubeconfig",
        str(control_plane.kubeconfig),
        "get",
        "--raw",
        "/api/v1/namespaces",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {item["metadata"]["name"] for item in yaml.safe_load(answer)["items"]}


@pytest.mark.parametrize("stack", ["dev", "mi300", "Prod_EU.west", "x" * 200, "---", "größe"])
def test_cluster_names_are_label_values_that_differ_by_checkout_and_stack(stack: str) -> None:
    name = cluster_name(Path("/a"), stack)
    assert len(name) <= 40
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*[a-z0-9]", name)
    assert name == cluster_name(Path("/b/../a"), stack)
    assert name not in (cluster_name(Path("/b"), stack), cluster_name(Path("/a"), stack + "x"))


def test_says_what_a_component_says_when_it_does_not_start(own: ControlPlane, tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    for path in own.binaries.directory.iterdir():
        (broken / path.name).symlink_to(path)
    (broken / "etcd").unlink()
    (broken / "etcd").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "etcd Version: 3.6.10" && exit\necho "no quorum today"; exit 1\n'
    )
    (broken / "etcd").chmod(0o755)
    with pytest.raises(SandboxError, match=r"^the control plane does not start: etcd: no quorum today \(log: "):
        ControlPlane("own", own.directory, Binaries(broken)).up()
    with pytest.raises(SandboxError, match="kwokctl is missing"):
        ControlPlane("own", own.directory, Binaries(tmp_path / "absent")).up()


def test_a_further_daemon_keeps_the_ports_of_the_others(tmp_path: Path) -> None:
    control_plane = ControlPlane("own", tmp_path, Binaries(tmp_path))
    cloud = daemons.ports(control_plane, ("aws", "metrics"))
    github = daemons.ports(control_plane, ("github",))
    assert (daemons.ports(control_plane, ("aws", "metrics")), daemons.ports(control_plane, ("github",))) == (
        cloud,
        github,
    )
    with socket.create_server(("127.0.0.1", cloud["aws"])):
        again = daemons.ports(control_plane, ("aws", "metrics"))
    assert (again["aws"] != cloud["aws"], again["metrics"]) == (True, cloud["metrics"])
