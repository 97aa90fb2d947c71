"""Defects of the driver that its tests must find: each is put into the driver that is sent, and a run is watched.

A recorder stands for Ansible, so that every call of it is seen: arguments, environment, and the files that it reads.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from gpufleet.bare_metal.kubespray.args import Kubespray, KubesprayClusterArgs
from gpufleet.bare_metal.kubespray.cluster import install_input, install_line, node_input
from gpufleet.bare_metal.ssh import SshLogin
from tests.bare_metal import node
from tests.components.bare_metal.kubespray.runs import STAND_IN, Runner

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECRET, SECRET_OF_A_HOST, KEY = "correct-horse-battery", "staple-of-w-1", "key-of-nobody"

RECORDER = """\
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--inventory") + 1]).parent
call = {
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "command line": pathlib.Path("/proc/self/cmdline").read_text(),
    "ssh_config": (folder / "ssh_config").read_text(),
    "known_hosts": (folder / "known_hosts").read_text(),
    "inventory": json.loads((folder / "inventory" / "hosts.yaml").read_text()),
}
with (folder / "recorded").open("a") as record:
    record.write(json.dumps(call) + "\\n")
print("PLAY RECAP ***")
for host in call["inventory"]["all"]["hosts"]:
    print(f"{host} : ok=1 changed=0 unreachable=0 failed=0")
"""


class Defect(NamedTuple):
    """A text of one of the driver's modules, and what stands there instead."""

    module: str
    text: str
    instead: str
    complaint: str
    """Beginning of what the run is accused of then."""


DEFECTS = {
    "secrets of all hosts on ansible-playbook's command line": Defect(
        "playbook",
        '    command += ["--extra-vars", json.dumps(dict(extra), sort_keys=True)] if extra else []',
        '    command += ["--extra-vars", json.dumps(dict(extra or {}), sort_keys=True)]\n'
        '    command += ["--extra-vars", (inventory / "group_vars/all/secrets.yml").read_text()]',
        "a secret is on the command line of",
    ),
    "secrets of one host on the command line": Defect(
        "playbook",
        '    command += ["--forks", str(forks)]',
        '    command += ["--forks", str(forks), "--extra-vars", (inventory / "host_vars/w-1/secrets.yml").read_text()]',
        "a secret is on the command line of",
    ),
    "secrets in the environment": Defect(
        "playbook",
        '            "ANSIBLE_TIMEOUT": "30",',
        '            "ANSIBLE_TIMEOUT": "30",\n            "SECRETS": (self.folder / "identity").read_text(),',
        "a secret is in the environment of",
    ),
    "extra variables as key=value": Defect(
        "playbook",
        "json.dumps(dict(extra), sort_keys=True)]",
        '" ".join(f"{key}={value}" for key, value in extra.items())]',
        "extra variables are no JSON",
    ),
    "SSH entries of leaving hosts forgotten": Defect(
        "converge",
        '        stage_ssh(cluster, payload["ssh"], {*desired["nodes"], *removed_nodes})',
        '        stage_ssh(cluster, payload["ssh"], {*desired["nodes"]})',
        "w-2 has no entry in ssh_config",
    ),
    "host keys of leaving hosts forgotten": Defect(
        "converge",
        "        cluster.write(name, text.replace(FOLDER, str(cluster.folder)))",
        '        cluster.write(name, text.replace(FOLDER, str(cluster.folder)) if name == "ssh_config" else "")',
        "cp-1 has no line in known_hosts",
    ),
    "a drain of lost nodes that waits for hours": Defect(
        "steps",
        "        extra = LOST if lost else _drain(desired)",
        "        extra = LOST | _drain(desired) if lost else _drain(desired)",
        "w-3 is lost, but its drain may take 21600s",
    ),
    "a drain of lost nodes that is repeated": Defect(
        "steps",
        '    "drain_retries": 0,\n    "drain_grace_period": 0,',
        '    "drain_retries": 3,\n    "drain_grace_period": 0,',
        "w-3 is lost, but its drain is repeated",
    ),
    "a reset of lost nodes": Defect(
        "steps", '    "reset_nodes": False,\n', '    "reset_nodes": True,\n', "w-3 is lost, but it would be reset"
    ),
    "a drain of living nodes that is cut off": Defect(
        "steps",
        "        extra = LOST if lost else _drain(desired)",
        "        extra = LOST if lost else LOST | _drain(desired) | {'drain_timeout': '1s'}",
        "w-2 lives, but its drain may take 1s",
    ),
}


@pytest.fixture
def runner(tmp_path: pathlib.Path) -> Runner:
    """A cluster of four machines that nobody reaches, with secrets, and kubespray's Ansible recorded."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (tmp_path / "recorder.py").write_text(RECORDER)
    for name, line in (("python", '"$@"'), ("ansible-playbook", f'{tmp_path}/recorder.py "$@"')):
        (venv / name).write_text(f"#!/bin/sh\nexec {sys.executable} {line}\n")
        (venv / name).chmod(0o755)
    secret = {"ansible_become_password": SECRET_OF_A_HOST}
    nodes = [
        node("cp-1", "192.0.2.1", "control_plane", "etcd"),
        node("w-1", "192.0.2.11", secret_variables=secret),
        node("w-2", "192.0.2.12"),
        node("w-3", "192.0.2.13"),
    ]
    return Runner(
        KubesprayClusterArgs(
            cluster="c",
            directory=str(tmp_path / "runner"),
            kubespray=Kubespray(folder=str(STAND_IN), venv=str(venv.parent), python=sys.executable),
            nodes=nodes,
            login=SshLogin(user="ci", private_key=KEY),
        )
    )


def lived(runner: Runner, defect: Defect | None) -> list[dict[str, Any]]:
    """A cluster's life with the defect: it is made, then loses a machine that lives and one that is lost. Returns the
    calls of Ansible."""
    payload = json.loads(install_input(runner.args))
    if defect:
        module = f"gpufleet/bare_metal/kubespray/driver/{defect.module}.py"
        assert payload["files"][module].count(defect.text) == 1, f"{module} has changed: adapt the defect"
        payload["files"][module] = payload["files"][module].replace(defect.text, defect.instead)
    assert runner.ended(runner.start(install_line(runner.args), json.dumps(payload))).code == 0
    runner.identity = runner.call("enroll").out.strip()
    entrusted = runner.entrust(KEY, registry_password=SECRET)
    whole = runner.converge()
    gone = {each.name: each for each in runner.args.nodes[2:]}
    shrunk = runner.converge(nodes=runner.args.nodes[:2], lost=["w-3"])
    removal = runner.call("remove", node_input(gone["w-2"]))
    assert [each.code for each in (entrusted, whole, shrunk, removal)] == [0] * 4, whole.err + shrunk.err + removal.err
    return [json.loads(line) for line in (runner.folder / "recorded").read_text().splitlines()]


def complaints(calls: list[dict[str, Any]]) -> Iterator[str]:
    """What is wrong with the calls of Ansible."""
    for call in calls:
        playbook = call["arguments"][-1]
        for place, text in (
            ("on the command line", call["command line"]),
            ("in the environment", str(call["environment"])),
        ):
            if any(secret in text for secret in (SECRET, SECRET_OF_A_HOST, KEY)):
                yield f"a secret is {place} of {playbook}"
        extra = options(call, "--extra-vars")
        if not all(text.startswith("{") for text in extra):
            yield f"extra variables are no JSON, so booleans become text: {extra}"
            continue
        for host in call["inventory"]["all"]["hosts"]:
            if not re.search(rf"^Host {host} ", call["ssh_config"], re.MULTILINE):
                yield f"{host} has no entry in ssh_config of {playbook}"
            if not re.search(rf"^{host} ssh-ed25519 ", call["known_hosts"], re.MULTILINE):
                yield f"{host} has no line in known_hosts of {playbook}"
        if playbook == "remove-node.yml":
            yield from wrong_removal({key: value for text in extra for key, value in json.loads(text).items()})


def options(call: dict[str, Any], name: str) -> list[str]:
    arguments = call["arguments"]
    return [arguments[index + 1] for index, each in enumerate(arguments) if each == name]


def wrong_removal(extra: dict[str, Any]) -> Iterator[str]:
    name, timeout = extra["node"], extra["drain_timeout"]
    if extra["drain_retries"] != 0:
        yield f"{name} is lost, but its drain is repeated"
    if name == "w-2" and timeout != "21600s":
        yield f"{name} lives, but its drain may take {timeout}"
    if name == "w-3" and timeout != "1s":
        yield f"{name} is lost, but its drain may take {timeout}"
    if name == "w-3" and extra["reset_nodes"] is not False:
        yield f"{name} is lost, but it would be reset"


def test_the_driver_as_it_is_gives_no_cause_for_complaint(runner: Runner) -> None:
    calls = lived(runner, None)
    assert list(complaints(calls)) == []
    playbooks = [call["arguments"][-1] for call in calls if "facts" not in call["arguments"][-1]]
    assert playbooks == ["cluster.yml", "remove-node.yml", "remove-node.yml"]
    assert [options(call, "--forks") for call in calls] == [["5"]] * len(calls)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, runner: Runner) -> None:
    found = list(complaints(lived(runner, DEFECTS[name])))
    assert [each for each in found if each.startswith(DEFECTS[name].complaint)], found
