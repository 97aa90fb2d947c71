"""The container toolkit on hosts: its script by a real SSH server, real apt and real dpkg."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpufleet.bare_metal import HostNeeds, NvidiaContainerToolkitArgs
from gpufleet.bare_metal.container_toolkit import TOOLKIT_PACKAGES, toolkit_script
from gpufleet.bare_metal.ssh import root_shell
from gpufleet_tools.hosts.survey import Survey, survey
from tests.hosts import package_repository
from tests.hosts.base_layer import BaseLayer
from tests.hosts.namespaces import Ended, Host, Hosts
from tests.hosts.package_repository import PackageRepository

PINNED, NEWER = "1.17.8-1", "1.20.0-1"


@dataclasses.dataclass
class Toolkit:
    """A host, and what is run on it as pulumi-command runs it: by SSH, the script as standard input."""

    hosts: Hosts
    host: Host
    args: NvidiaContainerToolkitArgs

    def run(self, verb: str) -> Ended:
        command = f"{root_shell(self.host.ssh, self.args.login)} {verb}"
        return self.hosts.ssh(self.host, command, stdin=toolkit_script(self.args), login=self.args.login)

    def install(self) -> list[str]:
        """What it changed, by its own account."""
        done = self.run("install")
        assert done.code == 0, done.err
        return [line.removeprefix("changed: ") for line in done.out.splitlines() if line.startswith("changed: ")]

    def deviations(self) -> list[str]:
        done = self.run("verify")
        lines = done.err.splitlines()
        assert (done.code == 0) == (not lines), done
        return [line.removeprefix("nvidia-container-toolkit: ") for line in lines]

    def states(self) -> dict[str, str]:
        asked = self.host.run(
            "dpkg-query", "-W", "-f", "${Package}=${Version} ${db:Status-Abbrev}\n", *TOOLKIT_PACKAGES
        )
        return dict(line.strip().split("=", 1) for line in asked.out.splitlines())

    def apt(self, *arguments: str) -> Ended:
        """apt-get, as somebody at the host's keyboard uses it."""
        return self.host.run("apt-get", "-q", "-y", *arguments, check=False)

    def but(self, **changes: Any) -> Toolkit:
        return dataclasses.replace(self, args=dataclasses.replace(self.args, **changes))


def on_a_host(hosts: Hosts, repository: PackageRepository) -> Toolkit:
    """A host with Docker, as far as systemd knows, and the document's toolkit for it."""
    host = hosts.start("gpu-1")
    host.add_unit("docker")
    args = NvidiaContainerToolkitArgs(
        hosts=[host.ssh],
        login=hosts.login,
        nvkind=True,
        repository=repository.url,
        key_url=repository.key_url,
        key_sha256=repository.key_sha256,
    )
    return Toolkit(hosts, host, args)


@pytest.fixture
def toolkit(hosts: Hosts, repository: PackageRepository) -> Toolkit:
    """A host that has none of it yet."""
    return on_a_host(hosts, repository)


@pytest.fixture(scope="module")
def shared(
    host_layer: BaseLayer, toolkit_packages: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Toolkit]:
    """One host for all tests that start from a finished one."""
    with (
        Hosts(tmp_path_factory.mktemp("shared"), host_layer) as hosts,
        package_repository.served(toolkit_packages, hosts.machine_address) as repository,
    ):
        yield on_a_host(hosts, repository)


@pytest.fixture
def installed(shared: Toolkit) -> Toolkit:
    """A host that has all of it, whatever the test before did."""
    shared.install()
    return shared


def held(version: str) -> dict[str, str]:
    return dict.fromkeys(TOOLKIT_PACKAGES, f"{version} hi")


def test_a_bare_host_gets_all_of_it(toolkit: Toolkit) -> None:
    changed = toolkit.install()
    assert changed[:3] == ["package repository", "pin", f"packages, now {PINNED}"]
    assert toolkit.states() == held(PINNED)
    assert toolkit.deviations() == []


def test_the_documents_commands_are_what_the_host_is_asked(toolkit: Toolkit, document_003: str) -> None:
    toolkit.install()
    wanted = re.findall(r"^sudo ((?:nvidia-ctk|systemctl) .+)$", document_003, re.MULTILINE)
    asked = [f"{program} {call}" for program in ("nvidia-ctk", "systemctl") for call in toolkit.host.calls(program)]
    assert len(wanted) == 3
    # The rest is of the package's own installation, and questions.
    assert [call for call in asked if "--quiet" not in call and "is-active" not in call] == wanted


def test_a_second_run_changes_and_restarts_nothing_and_asks_nobody(
    toolkit: Toolkit, repository: PackageRepository
) -> None:
    toolkit.install()
    restarts, requests = toolkit.host.calls("systemctl").count("restart docker"), len(repository.requests)
    files = toolkit.host.run("sh", "-c", "cat /etc/apt/*/nvidia* /etc/docker/daemon.json | cksum").out
    dpkg_log = toolkit.host.path("/var/log/dpkg.log").read_text()
    assert toolkit.install() == []
    assert restarts == toolkit.host.calls("systemctl").count("restart docker") == 1
    assert len(repository.requests) == requests
    assert toolkit.host.run("sh", "-c", "cat /etc/apt/*/nvidia* /etc/docker/daemon.json | cksum").out == files
    assert toolkit.host.path("/var/log/dpkg.log").read_text() == dpkg_log


def test_an_upgrade_of_everything_leaves_it_alone(installed: Toolkit) -> None:
    assert "0 upgraded" in installed.apt("upgrade").out
    assert "0 upgraded" in installed.apt("dist-upgrade").out
    assert installed.states() == held(PINNED)


@pytest.mark.parametrize("removed", ["hold", "pin"])
def test_hold_and_pin_each_suffice_against_an_upgrade(installed: Toolkit, removed: str) -> None:
    if removed == "hold":
        installed.host.run("apt-mark", "unhold", *TOOLKIT_PACKAGES)
    else:
        installed.host.path("/etc/apt/preferences.d/nvidia-container-toolkit").unlink()
    assert "0 upgraded" in installed.apt("upgrade").out
    assert {state.split()[0] for state in installed.states().values()} == {PINNED}


def test_without_hold_and_pin_the_same_upgrade_takes_all_four(installed: Toolkit) -> None:
    """Otherwise the tests above would show nothing."""
    installed.host.run("apt-mark", "unhold", *TOOLKIT_PACKAGES)
    installed.host.path("/etc/apt/preferences.d/nvidia-container-toolkit").unlink()
    assert "4 upgraded" in installed.apt("upgrade").out
    assert installed.states() == dict.fromkeys(TOOLKIT_PACKAGES, f"{NEWER} ii")


def test_a_newer_toolkit_is_taken_back(toolkit: Toolkit) -> None:
    toolkit.but(nvkind=False, version=NEWER).install()
    assert toolkit.states() == held(NEWER)
    assert f"packages, now {PINNED}" in toolkit.install()
    assert toolkit.states() == held(PINNED)


DRIFT: dict[str, tuple[str, str, str]] = {
    "packages upgraded by hand": (
        "apt-get -q -y --allow-change-held-packages install "
        + " ".join(f"{package}={NEWER}" for package in TOOLKIT_PACKAGES),
        f"nvidia-container-toolkit-base: is {NEWER}",
        f"packages, now {PINNED}",
    ),
    "the libraries alone upgraded": (
        f"apt-get -q -y --allow-change-held-packages install libnvidia-container1={NEWER}",
        f"libnvidia-container1: is {NEWER}",
        f"packages, now {PINNED}",
    ),
    "one package removed": (
        "dpkg --force-all --remove libnvidia-container-tools",
        "libnvidia-container-tools: is",
        f"packages, now {PINNED}",
    ),
    "one hold removed": (
        "apt-mark unhold libnvidia-container1",
        "libnvidia-container1: is not held; the next upgrade may replace it",
        "hold of libnvidia-container1",
    ),
    "pin removed": (
        "rm /etc/apt/preferences.d/nvidia-container-toolkit",
        f"libnvidia-container1: apt would install {NEWER}; the pin in /etc/apt/preferences.d/nvidia-container-toolkit"
        " does not hold",
        "pin",
    ),
    "setting turned off": (
        "sed -i 's/^accept-nvidia-visible-devices-as-volume-mounts.*/#&/' /etc/nvidia-container-runtime/config.toml",
        "/etc/nvidia-container-runtime/config.toml: accept-nvidia-visible-devices-as-volume-mounts is not true",
        "accept-nvidia-visible-devices-as-volume-mounts",
    ),
    "default runtime taken back": (
        "echo '{\"runtimes\": {}}' > /etc/docker/daemon.json",
        "/etc/docker/daemon.json: default-runtime is not nvidia",
        "default runtime of docker, which has been restarted",
    ),
    "Docker started with another configuration": (
        'echo \'{"default-runtime": "runc"}\' > /var/lib/stand-ins/docker.loaded',
        "docker: its default runtime is not nvidia but: runc",
        "default runtime of docker, which has been restarted",
    ),
}


@pytest.mark.parametrize("drift", DRIFT)
def test_drift_is_named_in_a_line_and_repaired(installed: Toolkit, drift: str) -> None:
    command, deviation, change = DRIFT[drift]
    installed.host.run("sh", "-ec", command)
    assert [line for line in installed.deviations() if line.startswith(deviation)]
    assert change in installed.install()
    assert installed.deviations() == []
    assert installed.states() == held(PINNED)


def test_what_cannot_be_repaired_is_said(toolkit: Toolkit) -> None:
    daemon = toolkit.host.path("/etc/docker/daemon.json")
    daemon.parent.mkdir()
    daemon.write_text('{"features": {"cdi": true}}')
    done = toolkit.run("install")
    assert done.code == 1
    assert done.err == (
        "nvidia-container-toolkit: /etc/docker/daemon.json: features.cdi is true; nvkind needs it off. Remove it\n"
    )


def test_running_containers_are_never_ended(toolkit: Toolkit) -> None:
    containers = toolkit.host.path("/var/lib/stand-ins/docker.containers")
    containers.write_text("4c01db0b339c\n0a1b2c3d4e5f\n")
    refused = toolkit.run("install")
    assert refused.code != 0
    assert refused.err.splitlines()[-1] == (
        "nvidia-container-toolkit: docker: 2 containers run, and its restart would end them; free the machine, stop"
        " them, and run pulumi up again"
    )
    assert "restart docker" not in toolkit.host.calls("systemctl")
    containers.unlink()
    assert toolkit.install() == ["default runtime of docker, which has been restarted"]


def test_with_live_restore_containers_continue(toolkit: Toolkit) -> None:
    daemon = toolkit.host.path("/etc/docker/daemon.json")
    daemon.parent.mkdir(exist_ok=True)
    daemon.write_text('{"live-restore": true}\n')
    toolkit.host.run("systemctl", "restart", "docker")
    toolkit.host.path("/var/lib/stand-ins/docker.containers").write_text("4c01db0b339c\n")
    assert toolkit.install()[-1] == "default runtime of docker, which has been restarted"


def test_a_run_that_ends_before_the_restart_is_finished_by_the_next(toolkit: Toolkit) -> None:
    unit = toolkit.host.path("/var/lib/stand-ins/docker")
    unit.unlink()
    failed = toolkit.run("install")
    assert failed.code == 1
    assert failed.err.splitlines()[-1] == "nvidia-container-toolkit: failed: systemctl restart docker"
    assert "Unit docker.service not found" in failed.err
    toolkit.host.add_unit("docker")
    assert toolkit.install() == ["default runtime of docker, which has been restarted"]


def test_a_script_that_arrives_in_part_does_nothing(toolkit: Toolkit) -> None:
    script = toolkit_script(toolkit.args)
    for part in (0.3, 0.6, 0.9, 0.99):
        done = toolkit.hosts.ssh(toolkit.host, "sudo -n sh -s install", stdin=script[: int(len(script) * part)])
        assert "changed" not in done.out
    assert not toolkit.host.path("/etc/apt/preferences.d/nvidia-container-toolkit").exists()


@pytest.mark.parametrize("program", ["apt-get", "apt-mark", "nvidia-ctk", "systemctl"])
def test_a_connection_that_breaks_off_is_made_good_by_the_next_run(toolkit: Toolkit, program: str) -> None:
    """The connection ends just before the program starts, and the script is left to itself."""
    breaking = toolkit.host.path(f"/usr/local/sbin/{program}")
    breaking.write_text(
        "#!/bin/sh\n"
        "rm /usr/local/sbin/${0##*/}\n"
        'for session in $(pgrep -f "^sshd: ci"); do kill "$session"; done\n'
        'exec "${0##*/}" "$@"\n'
    )
    breaking.chmod(0o755)
    assert toolkit.run("install").code == 255
    assert not breaking.exists()
    toolkit.install()
    assert toolkit.deviations() == []
    assert toolkit.states() == held(PINNED)
    assert toolkit.install() == []


def test_a_survey_of_hosts_finds_drift(installed: Toolkit) -> None:
    installed.host.run("apt-mark", "unhold", "libnvidia-container1")
    needs = {"gpu-1": HostNeeds(kubernetes=False, memory_mib=0, disk_gib=0)}
    parameters = Survey(installed.args.login, needs, {"toolkit": toolkit_script(installed.args)})
    (report,) = survey([installed.host.ssh], parameters)
    assert report.failures == (
        "nvidia-container-toolkit: libnvidia-container1: is not held; the next upgrade may replace it",
    )


def test_removal_lets_go_and_stops_nothing(installed: Toolkit) -> None:
    daemon = installed.host.path("/etc/docker/daemon.json").read_text()
    restarts = installed.host.calls("systemctl").count("restart docker")
    assert installed.run("remove").code == 0
    assert installed.states() == dict.fromkeys(TOOLKIT_PACKAGES, f"{PINNED} ii")
    assert list(installed.host.path("/etc/apt/sources.list.d").iterdir()) == []
    assert list(installed.host.path("/etc/apt/preferences.d").iterdir()) == []
    assert installed.host.path("/etc/docker/daemon.json").read_text() == daemon
    assert installed.host.calls("systemctl").count("restart docker") == restarts
    assert installed.run("remove").code == 0


def test_without_an_engine_no_runtime_is_touched(toolkit: Toolkit) -> None:
    for_kubespray = toolkit.but(nvkind=False, engine=None)
    for_kubespray.install()
    assert for_kubespray.deviations() == []
    assert not toolkit.host.path("/etc/docker").exists()
    assert toolkit.host.calls("systemctl") == []


def test_containerd(toolkit: Toolkit) -> None:
    toolkit.host.add_unit("containerd")
    with_containerd = toolkit.but(nvkind=False, engine="containerd")
    assert "default runtime of containerd, which has been restarted" in with_containerd.install()
    assert with_containerd.install() == []
    assert toolkit.host.calls("systemctl").count("restart containerd") == 1
    assert 'default_runtime_name = "nvidia"' in toolkit.host.path("/etc/containerd/config.toml").read_text()


REFUSED: dict[str, tuple[str, str]] = {
    "sudo asks for a password": ("guest", "sudo: a password is required"),
    "another key": ("key", "failed: /usr/lib/apt/apt-helper download-file"),
    "the repository in another file": ("second", "names the same repository, and apt refuses two keyrings for one"),
    "no such version": ("version", "failed: apt-get"),
    "another signer": ("signer", "failed: apt-get"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_host_that_cannot_have_it_says_why(toolkit: Toolkit, toolkit_packages: pathlib.Path, what: str) -> None:
    how, message = REFUSED[what]
    if how == "guest":
        toolkit = toolkit.but(login=toolkit.hosts.guest)
    elif how == "key":
        toolkit = toolkit.but(key_sha256="0" * 64)
    elif how == "second":
        other = toolkit.host.path("/etc/apt/sources.list.d/other.list")
        other.write_text(f"deb {toolkit.args.repository}/amd64 /\n")
    elif how == "version":
        toolkit = toolkit.but(version="1.17.9-1")
    else:
        stranger = (toolkit_packages / "strangers-key").read_bytes()
        url = toolkit.args.key_url.replace("gpgkey", "strangers-key")
        toolkit = toolkit.but(key_url=url, key_sha256=hashlib.sha256(stranger).hexdigest())
    done = toolkit.run("install")
    assert done.code == 1
    assert message in done.err
    assert "set -" not in done.err
