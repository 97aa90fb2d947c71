"""The namespaces of a container's process: for root, and for an ordinary user of a kernel that allows them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpufleet_tools.sandbox.arc import namespace

NOBODY = 65534
PORT = 443
PATIENCE = 30

Start = Callable[..., tuple[subprocess.Popen[str], socket.socket]]


def prefixes() -> Iterator[tuple[str, list[str]]]:
    """How a process is started as root, and as an ordinary user."""
    if os.getuid() == 0:
        yield "root", []
        yield "user", ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    else:
        yield "user", []


USERS = dict(prefixes())


def reason_to_skip(prefix: list[str]) -> str:
    """Why namespaces cannot be made; empty if they can."""
    if prefix and not shutil.which(prefix[0]):
        return f"{prefix[0]} is not here"
    command = [*prefix, "unshare", *([] if os.getuid() == 0 and not prefix else ["--user", "--map-root-user"])]
    tried = subprocess.run([*command, "--mount", "--uts", "--net", "true"], capture_output=True, text=True, check=False)
    return f"this kernel refuses namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(params=USERS)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a command in namespaces as that user, and returns the process and its listening socket."""
    prefix = USERS[request.param]
    if reason := reason_to_skip(prefix):
        pytest.skip(reason)
    # Not pytest's folder, which other users cannot enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started: list[subprocess.Popen[str]] = []

        def run(*command: str) -> tuple[subprocess.Popen[str], socket.socket]:
            content = {"hostname": "listener-1", "ports": [PORT], "command": command, "environment": {"ONLY": "this"}}
            (folder / "start.json").write_text(json.dumps(content))
            (folder / "hosts").write_text("127.0.0.1 localhost\n127.0.0.1 api.github.com\n")
            (folder / "serviceaccount").mkdir()
            (folder / "serviceaccount/token").write_text("of the service account")
            script = shutil.copy(namespace.__file__, folder)
            if prefix:
                for each in (folder, *folder.rglob("*")):
                    os.chown(each, NOBODY, NOBODY)
            ours, theirs = socket.socketpair()
            with ours, theirs:
                process = subprocess.Popen(
                    [*prefix, sys.executable, "-I", "-S", script, str(folder), str(theirs.fileno())],
                    stdout=subprocess.PIPE,
                    text=True,
                    pass_fds=[theirs.fileno()],
                )
                started.append(process)
                ours.settimeout(PATIENCE)
                descriptors = socket.recv_fds(ours, 16, 1)[1]
            return process, socket.socket(fileno=descriptors[0])

        yield run
        for process in started:
            process.kill()
            process.communicate()


def test_a_process_sees_what_a_container_would_see(start: Start) -> None:
    program = """
        echo "$(hostname) $ONLY $HOME"
        cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo
        cat /etc/hosts
        tail -n +3 /proc/net/dev | cut -d: -f1
    """
    process, listening = start("/bin/sh", "-c", program)
    listening.close()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert [line.strip() for line in printed.splitlines()] == [
        "listener-1 this",
        "of the service account",
        "127.0.0.1 localhost",
        "127.0.0.1 api.github.com",
        "lo",
    ]


def test_every_connection_leads_to_the_holder_of_the_socket(start: Start) -> None:
    client = f"exec 3<>/dev/tcp/api.github.com/{PORT}; echo hello >&3; cat <&3"
    process, listening = start("/bin/bash", "-c", client)
    with listening:
        listening.settimeout(PATIENCE)
        connection, _ = listening.accept()
        with connection:
            assert connection.recv(100) == b"hello\n"
            connection.sendall(b"simulated\n")
    assert process.communicate(timeout=PATIENCE)[0] == "simulated\n"


def test_nothing_else_is_reachable(start: Start) -> None:
    """Neither a server of this machine, nor another machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = f"(: <>/dev/tcp/127.0.0.1/{port}) 2>&1; (: <>/dev/tcp/192.0.2.1/443) 2>&1"
        process, listening = start("/bin/bash", "-c", client)
        listening.close()
        said = process.communicate(timeout=PATIENCE)[0]
    assert [line.rpartition(": ")[2] for line in said.splitlines() if "connect: " in line] == [
        "Connection refused",
        "Network is unreachable",
    ]
