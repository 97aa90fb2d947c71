"""NvidiaContainerToolkit: its program, document 003's commands, and what is refused. What its script does is tried on
hosts (tests/hosts)."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.bare_metal import NvidiaContainerToolkit, NvidiaContainerToolkitArgs, SshHost, SshLogin
from gpufleet.bare_metal.container_toolkit import (
    ADVISORIES,
    NVIDIA_CONTAINER_TOOLKIT_VERSION,
    SCRIPT,
    TOOLKIT_PACKAGES,
    advisories_of,
    toolkit_problems,
    toolkit_script,
    upstream,
)
from gpufleet_tools.plan.plan import Plan
from tests.conftest import Generated
from tests.input_types import wrong_inputs
from tests.recording import HOST_KEY, on_hosts, recorded, the

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "nvidia-container-toolkit.sh"

ONE = SshHost(name="gpu-1", address="192.0.2.1", host_keys=[HOST_KEY])
TWO = SshHost(name="gpu-2", address="192.0.2.2", host_keys=[HOST_KEY])
ARGS = NvidiaContainerToolkitArgs(hosts=[ONE, TWO], login=SshLogin(user="ci", private_key="very secret"), nvkind=True)
"""Document 003's toolkit."""


def but(**changes: Any) -> NvidiaContainerToolkitArgs:
    return dataclasses.replace(ARGS, **changes)


def plan(args: NvidiaContainerToolkitArgs = ARGS) -> Plan:
    return recorded(lambda: NvidiaContainerToolkit("toolkit", args, on_hosts()))


def commands(args: NvidiaContainerToolkitArgs = ARGS) -> dict[str, dict[str, Any]]:
    """Inputs of every command, by host."""
    return {
        resource.name.removeprefix("toolkit-"): dict(resource.inputs)
        for resource in plan(args).resources
        if resource.type == "command:remote:Command"
    }


# -- document 003 -----------------------------------------------------------------------------------------------------


@pytest.mark.generated
def test_the_whole_script_as_document_003_wants_it(generated: Generated) -> None:
    generated(GOLDEN, toolkit_script(ARGS))


def test_version_and_packages_are_the_documents(document_003: str) -> None:
    version = re.search(r"NVIDIA_CONTAINER_TOOLKIT_VERSION=(\S+)", document_003)
    assert version
    assert version[1] == NVIDIA_CONTAINER_TOOLKIT_VERSION == ARGS.version
    named = re.findall(r"^ +(\S+)=\$\{NVIDIA_CONTAINER_TOOLKIT_VERSION\}", document_003, re.MULTILINE)
    assert sorted(named) == sorted(TOOLKIT_PACKAGES)


def test_the_documents_commands_are_run(document_003: str) -> None:
    """Each `sudo nvidia-ctk` and `sudo systemctl` that the document does not comment out, in its order."""
    wanted = re.findall(r"^sudo ((?:nvidia-ctk|systemctl) .+)$", document_003, re.MULTILINE)
    assert len(wanted) == 3
    script = expanded(toolkit_script(ARGS))
    places = [script.find(f"quietly {command}") for command in wanted]
    assert -1 not in places
    assert places == sorted(places)


def expanded(script: str) -> str:
    """The script with its values in the places of their names, and without quotes."""
    values = re.findall(r"^(\w+)=(\S*)$", script, re.MULTILINE)
    for name, value in values:
        script = re.sub(rf"\${name}\b", value.strip("'\""), script)
    return re.sub(r" +$", "", script.replace('"', ""), flags=re.MULTILINE)


def test_cdi_is_not_enabled_for_nvkind(document_003: str) -> None:
    (removed,) = re.findall(r"^# sudo (nvidia-ctk .+--cdi\.enabled)$", document_003, re.MULTILINE)
    assert removed not in expanded(toolkit_script(ARGS))
    assert removed in expanded(toolkit_script(but(nvkind=False, cdi=True)))


def test_all_four_packages_are_named_in_the_script() -> None:
    (line,) = re.findall(r"^packages='(.*)'$", SCRIPT.read_text(), re.MULTILINE)
    assert tuple(line.split()) == TOOLKIT_PACKAGES


@pytest.mark.parametrize(
    "line",
    [
        "Pin: version $version",
        "Pin-Priority: 1001",
        "Package: $packages",
        "deb [signed-by=$keyring] ${repository%/}/\\$(ARCH) /",
        '--no-install-recommends --allow-downgrades --allow-change-held-packages "$@"',
        'quietly apt-mark hold "$@"',
    ],
)
def test_what_keeps_the_version_there(line: str) -> None:
    """Beyond document 003, which installs a version and lets the next upgrade replace it."""
    assert line in SCRIPT.read_text()


# -- the program ------------------------------------------------------------------------------------------------------


def test_one_command_per_host_named_after_it() -> None:
    assert commands().keys() == {"gpu-1", "gpu-2"}
    assert commands(but(hosts=[TWO])).keys() == {"gpu-2"}


def test_hosts_are_changed_one_after_the_other() -> None:
    first, second = (each for each in plan().resources if each.type == "command:remote:Command")
    assert first.urn not in first.depends_on
    assert first.urn in second.depends_on


def test_a_command_is_short_and_the_script_is_its_input() -> None:
    """pulumi-command quotes the command in every error, and not what it reads."""
    command = commands()["gpu-1"]
    assert command["create"] == command["update"] == "sudo -n sh -s install"
    assert command["delete"] == "sudo -n sh -s remove"
    assert command["stdin"] == toolkit_script(ARGS)


def test_root_needs_no_sudo() -> None:
    command = commands(but(login=SshLogin(user="root", private_key="key")))["gpu-1"]
    assert command["create"] == "sh -s install"


def test_nothing_that_a_stock_server_refuses_and_nothing_that_replaces() -> None:
    for command in commands().values():
        assert "environment" not in command
        assert command["addPreviousOutputInEnv"] is False
        # A replacement runs `install` first and `remove` after it.
        assert "triggers" not in command
    assert the(plan(but(hosts=[ONE])), "Command").options["deleteBeforeReplace"] is True


def test_the_key_is_only_in_the_connection() -> None:
    command = commands()["gpu-1"]
    assert "very secret" not in repr({name: value for name, value in command.items() if name != "connection"})
    assert "very secret" not in repr(plan())


@pytest.mark.parametrize(
    ("changes", "runs_again"),
    [
        ({}, False),
        ({"checked": "2026-11-21"}, True),
        ({"version": "1.17.9-1"}, True),
        ({"repository": "https://mirror.example/deb"}, True),
        ({"key_sha256": "0" * 64}, True),
    ],
    ids=lambda value: repr(value),
)
def test_what_has_a_command_run_again(changes: dict[str, Any], runs_again: bool) -> None:
    assert (commands(but(**changes))["gpu-1"] != commands()["gpu-1"]) == runs_again


def test_a_text_that_changes_is_no_part_of_what_runs() -> None:
    script = commands(but(checked="$(reboot)"))["gpu-1"]["stdin"]
    assert script == toolkit_script(ARGS) + "# checked: $(reboot)\n"


def test_the_verification_is_the_script() -> None:
    made: list[NvidiaContainerToolkit] = []
    recorded(lambda: made.append(NvidiaContainerToolkit("toolkit", but(checked="today"), on_hosts())))
    assert made[0].verification == toolkit_script(ARGS)


def test_inputs_are_what_the_sdk_knows() -> None:
    assert wrong_inputs(plan()) == []


@pytest.mark.process
@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=30))
def test_no_value_becomes_a_command(text: str) -> None:
    """Whatever the values are, the shell that reads them sees them as they were."""
    script = toolkit_script(but(version=text, repository=text)).partition("# NVIDIA Container Toolkit")[0]
    printed = subprocess.run(
        ["sh", "-c", script + 'printf "%s\\n%s" "$version" "$repository"'],
        capture_output=True,
        timeout=10,
        check=True,
    )
    assert printed.stdout.decode() == f"{text}\n{text}"


# -- what is refused --------------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "jit-cdi for nvkind": (
        {"version": "1.18.0-1"},
        "version: 1.18.0-1 uses jit-cdi by default, as does every version from 1.18.0, but nvkind requires the legacy"
        " runtime; use 1.17.8-1",
    ),
    "newer still": ({"version": "1.20.0-1"}, "version: 1.20.0-1 uses jit-cdi by default"),
    "no revision": ({"version": "1.17.8"}, "version: '1.17.8' is not a package version such as 1.17.8-1"),
    "a candidate": ({"version": "1.18.0~rc.1-1"}, "version: '1.18.0~rc.1-1' is not a package version"),
    "a critical weakness": ({"version": "1.17.7-1"}, "version: 1.17.7-1 has CVE-2025-23266, which is critical"),
    "CDI for nvkind": ({"cdi": True}, "cdi: nvkind does not use CDI"),
    "containerd for nvkind": ({"engine": "containerd"}, "engine: nvkind runs its nodes in Docker, not containerd"),
    "CDI without an engine": (
        {"nvkind": False, "engine": None, "cdi": True},
        "cdi: requires an engine",
    ),
    "no hosts": ({"hosts": []}, "hosts: is empty; at least one host"),
    "a folder": ({"repository": "/srv/mirror"}, "repository: '/srv/mirror' is not a URL"),
    "an option in a URL": (
        {"repository": "https://mirror.example/ [trusted=yes]"},
        "repository: 'https://mirror.example/ [trusted=yes]' is not a URL",
    ),
    "a key that anyone gives": ({"key_url": "http://mirror.example/key"}, "key_sha256: is required unless key_url"),
    "half a sum": ({"key_sha256": "abc"}, "key_sha256: is not a SHA-256"),
    "two lines": ({"checked": "today\nreboot"}, "checked: has several lines"),
    "a host without a key": (
        {"hosts": [dataclasses.replace(ONE, host_keys=[])]},
        "hosts[0].host_keys: is empty; read a key on the host's own console",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_each_refusal_is_one_line_that_says_what_to_do(what: str) -> None:
    changes, expected = REFUSED[what]
    reasons = [str(problem) for problem in toolkit_problems(but(**changes))]
    assert len(reasons) == 1
    assert reasons[0].startswith(expected)
    assert "\n" not in reasons[0]
    with pytest.raises(ValueError, match=r"^toolkit: ") as raised:
        plan(but(**changes))
    assert "very secret" not in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1.17.9-1"},
        {"nvkind": False, "version": "1.20.0-1"},
        {"nvkind": False, "version": "1.20.0-1", "cdi": True},
        {"nvkind": False, "engine": "containerd"},
        {"nvkind": False, "engine": None},
        {"key_url": "http://mirror.example/key", "key_sha256": "0" * 64},
    ],
    ids=repr,
)
def test_what_is_not_refused(changes: dict[str, Any]) -> None:
    assert not [*toolkit_problems(but(**changes))]


# -- advisories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "open_"),
    [
        ("1.20.0-1", []),
        ("1.19.1-1", []),
        ("1.19.0-1", ["CVE-2026-24260"]),
        ("1.17.8-1", ["CVE-2026-24260"]),
        ("1.17.7-1", ["CVE-2025-23266", "CVE-2025-23267", "CVE-2026-24260"]),
        ("1.17.3-1", ["CVE-2025-23359", "CVE-2025-23266", "CVE-2025-23267", "CVE-2026-24260"]),
        ("1.16.1-1", [advisory.identifier for advisory in ADVISORIES]),
    ],
)
def test_weaknesses_of_a_version(version: str, open_: list[str]) -> None:
    assert [advisory.identifier for advisory in advisories_of(version)] == open_


def test_the_pinned_version_has_no_critical_weakness() -> None:
    assert [each for each in advisories_of(NVIDIA_CONTAINER_TOOLKIT_VERSION) if each.severity == "critical"] == []
    assert upstream(NVIDIA_CONTAINER_TOOLKIT_VERSION) == (1, 17, 8)
