"""kubespray's driver as the component calls it, on hosts that are folders of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, cast

from gpufleet.bare_metal.kubespray.args import Kubespray, KubesprayClusterArgs, KubesprayNode
from gpufleet.bare_metal.kubespray.cluster import (
    converge_input,
    driver_line,
    entrust_input,
    folder_of,
    install_input,
    install_line,
    kubeconfig_input,
    node_input,
    secret_hosts,
)
from tests.conftest import Outcome

STAND_IN = pathlib.Path(__file__).resolve().parents[3] / "kubespray"
VENV = pathlib.Path(sys.prefix)
HERE = Kubespray(folder=str(STAND_IN), venv=str(VENV), python=sys.executable)


def local_node(root: pathlib.Path, name: str, *roles: str, **further: Any) -> KubesprayNode:
    """A node whose host is a folder."""
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "stand_in_root": str(root / name),
    }
    roles = roles or ("worker",)
    return KubesprayNode(name=name, address="127.0.0.1", roles=roles, variables=variables, **further)  # type: ignore[arg-type]


def marker(root: pathlib.Path, name: str, what: str) -> pathlib.Path:
    """A file that makes the stand-in `fails` or `waits` on a host that is a folder."""
    file = root / name / "etc/kubernetes" / f"stand-in-{what}"
    file.touch()
    return file


class Runner:
    """The machine that runs kubespray on one cluster."""

    def __init__(self, args: KubesprayClusterArgs) -> None:
        self.args = args
        self.folder = pathlib.Path(folder_of(args))
        self.entrusted: str | None = None
        self.identity: str | None = None
        """Desired state of the cluster, the payload of the run; None as in a first preview."""
        self._before: set[pathlib.Path] = set()

    def start(self, line: str, stdin: str = "", **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdin
        # A command that refuses may end before it reads its input.
        for send in (lambda: process.stdin.write(stdin), process.stdin.close):
            with contextlib.suppress(BrokenPipeError):
                send()
        process.stdin = None
        return process

    def ended(self, process: subprocess.Popen[str]) -> Outcome:
        out, err = process.communicate(timeout=600)
        return Outcome(process.returncode, out, err)

    def install(self) -> Outcome:
        return self.ended(self.start(install_line(self.args), install_input(self.args)))

    def begin(self, command: str, stdin: str = "") -> subprocess.Popen[str]:
        self._before = self._logs()
        return self.start(driver_line(self.args, command), stdin)

    def entrust(self, key: str | None = None, **variables: str) -> Outcome:
        """Hands over what is secret: these variables of all hosts, and those of each host."""
        # No outputs: these tests declare text.
        hosts = cast(dict[str, dict[str, str]], secret_hosts(self.args))
        ended = self.call("entrust", entrust_input(key, variables, hosts))
        self.entrusted = ended.out.strip()
        return ended

    def call(self, command: str, stdin: str = "") -> Outcome:
        return self.ended(self.begin(command, stdin))

    def converge_begun(self, **changes: Any) -> subprocess.Popen[str]:
        self.args = dataclasses.replace(self.args, **changes)
        return self.begin("converge", converge_input(self.args, self.entrusted, self.identity))

    def converge(self, **changes: Any) -> Outcome:
        """A `pulumi up` with changed arguments, without its deletions."""
        return self.ended(self.converge_begun(**changes))

    def remove(self, *names: str, **changes: Any) -> list[Outcome]:
        """A `pulumi up` that leaves out some nodes: first the run for all, then each node's deletion."""
        gone = {node.name: node for node in self.args.nodes if node.name in names}
        first = self.converge(nodes=[node for node in self.args.nodes if node.name not in names], **changes)
        return [first, *(self.call("remove", node_input(gone[name])) for name in names)]

    def come_to(self, playbook: str, task: str) -> None:
        """Waits until a playbook that has been run since the last `begin` has come to a task."""
        ends = time.monotonic() + 180
        while not any(task in log.read_text() for log in self._logs(playbook) - self._before):
            assert time.monotonic() < ends, f"{playbook} does not come to {task}"
            time.sleep(0.1)

    def _logs(self, playbook: str = "*") -> set[pathlib.Path]:
        return set(self.folder.glob(f"logs/*-{playbook}.log"))

    def kubeconfig(self) -> Outcome:
        return self.call("kubeconfig", kubeconfig_input(self.args, "identity"))

    def calls(self) -> list[dict[str, Any]]:
        """What each playbook was called with, in order."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def drains(self) -> list[dict[str, Any]]:
        """How each removed node was drained, by name of the node."""
        drains = [json.loads(line) for line in (self.folder / "drains").read_text().splitlines()]
        return sorted(drains, key=lambda drain: str(drain["node"]))

    def playbooks(self) -> list[tuple[str, str]]:
        """Which playbooks ran, limited to or for which nodes; gathering facts left out."""
        return [
            (call["playbook"], call["node"] or call["limit"])
            for call in self.calls()
            if call["playbook"] != "playbooks/facts.yml"
        ]

    def members(self) -> list[str]:
        return list(json.loads((self.folder / "journal.json").read_text())["members"])
