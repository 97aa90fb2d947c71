"""The process in which `forks.py` runs programs as forks."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

from gpufleet_tools import forks


class ForkServer:
    """A running process of `forks.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, request: forks.Request, seconds: float) -> list[int]:
        """Run programs in parallel and return their exit codes. A server runs one request. Raises TimeoutError after
        so many seconds."""
        try:
            out, _ = self._process.communicate(json.dumps(request), seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        return json.loads(out) if out else [self._process.returncode] * len(request["programs"])


@contextlib.contextmanager
def fork_server() -> Iterator[ForkServer]:
    """Start the process, which imports this command's libraries while the caller continues. At the end, the process and
    its forks are killed."""
    # -P keeps the program's folder out of the module search path.
    command = [sys.executable, "-P", str(pathlib.Path(forks.__file__)), *map(str, packages())]
    # In its own process group, its forks end with it.
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as process:
        try:
            yield ForkServer(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def packages() -> list[pathlib.Path]:
    """Return the folders of the packages that run this command."""
    files = [importlib.import_module(name).__file__ for name in forks.OWN]
    return list(dict.fromkeys(pathlib.Path(file).resolve().parents[1] for file in files if file))
