"""The stand-ins do as the programs that they stand for, as far as this project asks: one beside the other."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tomllib
from typing import Any

import pytest

from tests.hosts.namespaces import Host, Hosts
from tests.hosts.package_repository import REAL_CTK, STAND_INS

CONFIGURE = "runtime configure --runtime=docker --set-as-default"
SETTING = "accept-nvidia-visible-devices-as-volume-mounts"


def ctk(host: Host, program: str, arguments: str, daemon: str | None) -> tuple[bool, Any, Any, Any]:
    """Whether it was refused, and what it left of the three files that it may write."""
    paths = [host.path(f"/etc/{name}") for name in ("docker", "nvidia-container-runtime", "containerd")]
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    docker, toolkit, containerd = paths[0] / "daemon.json", paths[1] / "config.toml", paths[2] / "config.toml"
    if daemon is not None:
        docker.write_text(daemon)
    ended = host.run(program, *arguments.split(), check=False)
    try:
        read = json.loads(docker.read_text()) if docker.exists() else None
    except ValueError:
        read = docker.read_text()
    setting = tomllib.loads(toolkit.read_text()).get(SETTING, False) if toolkit.exists() else None
    plugins = tomllib.loads(containerd.read_text())["plugins"] if containerd.exists() else None
    default = plugins and plugins["io.containerd.grpc.v1.cri"]["containerd"]["default_runtime_name"]
    return ended.code != 0, read, setting, default


@pytest.mark.parametrize(
    ("arguments", "daemon"),
    [
        (CONFIGURE, None),
        (CONFIGURE, "{}"),
        (CONFIGURE, '{"log-driver": "local", "features": {"cdi": true}}'),
        (CONFIGURE, '{"runtimes": {"other": {"path": "other"}}, "default-runtime": "other"}'),
        (CONFIGURE, "{broken"),
        ("runtime configure --runtime=docker", None),
        (f"{CONFIGURE} --cdi.enabled", None),
        ("runtime configure --runtime=containerd --set-as-default", None),
        ("runtime configure --runtime=podman --set-as-default", None),
        ("runtime configure --nonsense", None),
        (f"config --set {SETTING}=true --in-place", None),
        (f"config --set {SETTING} --in-place", None),
        (f"config --set {SETTING}=false --in-place", None),
        (f"config --set {SETTING}=maybe --in-place", None),
        (f"config --set {SETTING}=true", None),
        ("config --set nonsense=true --in-place", None),
        ("config --in-place", None),
        ("nonsense", None),
    ],
)
def test_nvidia_ctk_and_its_stand_in(hosts: Hosts, arguments: str, daemon: str | None) -> None:
    real = os.environ.get(REAL_CTK)
    if not real:
        pytest.skip(f"{REAL_CTK} names no real nvidia-ctk")
    host = hosts.start("node-1")
    for source, name in ((pathlib.Path(real), "real"), (STAND_INS / "nvidia-ctk", "stand-in")):
        shutil.copy(source, host.path(f"/usr/bin/{name}"))
    of_real, of_stand_in = (ctk(host, name, arguments, daemon) for name in ("real", "stand-in"))
    assert of_real == of_stand_in


def test_systemctl_refuses_units_that_are_not_there(hosts: Hosts) -> None:
    host = hosts.start("node-1")
    assert "Unit docker.service not found" in host.run("systemctl", "restart", "docker", check=False).err
    assert host.run("systemctl", "is-active", "docker", check=False).out == "inactive\n"
    host.add_unit("docker")
    host.run("systemctl", "restart", "docker")
    assert host.run("systemctl", "is-active", "docker.service").out == "active\n"
    assert host.calls("systemctl")[-2:] == ["restart docker", "is-active docker.service"]


@pytest.mark.parametrize("program", ["docker", "systemctl"])
def test_each_says_that_it_is_a_stand_in(hosts: Hosts, program: str) -> None:
    host = hosts.start("node-1")
    refused = host.run(program, "run", "nonsense", check=False)
    assert refused.code != 0
    assert "stand-in" in refused.err
