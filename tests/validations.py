"""Runs validations of GPUs as their init container does, on a folder instead of a machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gpufleet.gpu_validation import GpuValidation, expectations, init_container

SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell[0]) is None, reason=f"{shell[0]} is not installed"))
    for shell in (["dash"], ["busybox", "sh"], ["bash", "--posix"])
]
"""Shells of the images: Debian's, Alpine's and others'."""


@dataclass(frozen=True)
class Outcome:
    """What a validation left."""

    code: int
    faults: list[str]
    """Lines of the termination message."""
    result: dict[str, list[str]]
    """Result on the host: values by key."""
    log: str
    """What the container printed."""


class Machine:
    """A machine with GPUs, whose files are below a folder."""

    def __init__(self, folder: pathlib.Path, script: pathlib.Path, shell: list[str]) -> None:
        self.folder, self.script, self.shell = folder, script, shell
        for name in ("sys", "dev", "state", "declared", "bin"):
            (folder / name).mkdir()

    def write(self, path: str, text: str) -> None:
        """Write a file of the machine."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def program(self, name: str, text: str) -> None:
        """Install a program that the script finds first."""
        self.write(f"bin/{name}", "#!/bin/sh\n" + text)
        (self.folder / "bin" / name).chmod(0o755)

    @contextlib.contextmanager
    def hanging(self, path: str) -> Iterator[None]:
        """Let programs that read a file of the machine hang."""
        file = self.folder / path
        file.unlink()
        os.mkfifo(file)
        try:
            yield
        finally:
            # Their reading ends with the last writer.
            os.close(os.open(file, os.O_RDWR))

    def reboot(self) -> None:
        """Forget what is in memory."""
        shutil.rmtree(self.folder / "state")
        (self.folder / "state").mkdir()

    def validate(self, validation: GpuValidation, node: str = "gpu-1") -> Outcome:
        """Run the validation once, as the kubelet does."""
        for name, text in expectations(validation).items():
            self.write(f"declared/{name}", text)
        container = init_container(validation, self.script, "image")
        assert container["command"][:2] == ["sh", "-c"]
        message = self.folder / "message"
        message.unlink(missing_ok=True)
        places = {
            "STATE": self.folder / "state",
            "DECLARED": self.folder / "declared",
            "TERMINATION_MESSAGE": message,
            "SYSFS": self.folder / "sys",
            "DEV": self.folder / "dev",
        }
        shown: dict[str, Any] = {each["name"]: each.get("value", node) for each in container["env"]}
        assert shown.keys() >= places.keys()
        # The script starts `sh` for the vendor's part: that of the same image.
        (self.folder / "bin" / "sh").unlink(missing_ok=True)
        self.program("sh", f'exec {shutil.which(self.shell[0])} {" ".join(self.shell[1:])} "$@"\n')
        # Files, not pipes: a part that hangs keeps them open.
        printed, log = self.folder / "printed", self.folder / "log"
        with printed.open("w") as stdout, log.open("w") as stderr:
            ended = subprocess.run(
                [str(shutil.which(self.shell[0])), *self.shell[1:], *container["command"][1:]],
                env={**shown, **{name: str(place) for name, place in places.items()}, "PATH": self.path},
                stdout=stdout,
                stderr=stderr,
                timeout=60,
            )
        faults = message.read_text().splitlines()
        assert printed.read_text().splitlines() == faults
        return Outcome(ended.returncode, faults, self.result(), log.read_text())

    @property
    def path(self) -> str:
        """PATH of the container."""
        return f"{self.folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"

    def result(self) -> dict[str, list[str]]:
        """Return the result that the host keeps."""
        found: dict[str, list[str]] = {}
        for line in (self.folder / "state" / "gpu-validation").read_text().splitlines():
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
        return found


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """Return an argument as the kubelet passes it: it replaces $(NAME) of known variables, and `$$` by `$`
    (third_party/forked/golang/expansion/expand.go of Kubernetes)."""
    found, rest = "", text
    while "$" in rest:
        before, _, rest = rest.partition("$")
        found += before
        if rest.startswith("$"):
            found, rest = found + "$", rest[1:]
        elif rest.startswith("(") and ")" in rest:
            name, _, rest = rest[1:].partition(")")
            found += environment.get(name, f"$({name})")
        else:
            found += "$"
    return found + rest
