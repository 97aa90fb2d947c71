"""Installation of kubespray at one tag, with the Ansible that it requires. Changes nothing if both are installed.

Sent unchanged to the machine that runs kubespray: standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import TypedDict

PYTHONS = ((3, 11), (3, 13))
"""First and last Python version that kubespray's Ansible supports (docs/ansible/ansible.md at v2.31.0)."""

ANSIBLE = re.compile(r"2\.18\.")
"""Versions of ansible-core that kubespray accepts (playbooks/ansible_version.yml at v2.31.0)."""


class InstallError(Exception):
    """Error raised if kubespray cannot be installed. The message is one line."""


class Source(TypedDict):
    """Origin of kubespray and of its Python environment."""

    version: str
    url: str
    commit: str | None
    folder: str | None
    venv: str | None
    python: str
    package_index: str | None


def install(root: pathlib.Path, source: Source, say: Callable[[str], None]) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the folders of kubespray's source and of its Python environment. Create them if they are missing.

    Raise InstallError.
    """
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        checkout = _folder(source) if source["folder"] else _checkout(root / source["version"], source, say)
        venv = pathlib.Path(source["venv"]) if source["venv"] else _venv(root, checkout, source, say)
    found = _output([str(venv / "bin" / "python"), "-c", "import ansible; print(ansible.__version__)"])
    if not ANSIBLE.match(found):
        raise InstallError(f"{venv}: has ansible-core {found}, but kubespray requires 2.18; remove the folder")
    return checkout, venv


def _folder(source: Source) -> pathlib.Path:
    folder = pathlib.Path(str(source["folder"]))
    if not (folder / "cluster.yml").is_file():
        raise InstallError(f"{folder}: has no cluster.yml; write the folder of kubespray's source")
    return folder


def _checkout(folder: pathlib.Path, source: Source, say: Callable[[str], None]) -> pathlib.Path:
    """Return the folder of a clone of one tag. A clone gets its name when it is complete."""
    if not folder.exists():
        say(f"fetching kubespray {source['version']}")
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1"]
        _output([*clone, "--branch", source["version"], "--", source["url"], str(part)])
        part.rename(folder)
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if source["commit"] and commit != source["commit"]:
        raise InstallError(
            f"kubespray {source['version']} from {source['url']} is commit {commit}, not {source['commit']};"
            f" the tag has moved, or the mirror has other content; compare the commits, then remove {folder}"
        )
    return folder


def _venv(root: pathlib.Path, checkout: pathlib.Path, source: Source, say: Callable[[str], None]) -> pathlib.Path:
    """Return the folder of a Python environment with kubespray's requirements. Environments cannot be renamed, so a
    file marks complete ones."""
    requirements = (checkout / "requirements.txt").read_bytes()
    version = _output([source["python"], "-c", "import sys; print(*sys.version_info[:2])"])
    found = tuple(int(part) for part in version.split())
    if not PYTHONS[0] <= found <= PYTHONS[1]:
        raise InstallError(
            f"{source['python']} is Python {'.'.join(version.split())}, but kubespray's Ansible requires 3.11 to 3.13;"
            " use one of those"
        )
    digest = hashlib.sha256(requirements + version.encode()).hexdigest()
    folder = root / f"venv-{digest[:12]}"
    complete = folder / "whole"
    if not complete.exists():
        say("installing kubespray's Ansible")
        shutil.rmtree(folder, ignore_errors=True)
        _output([source["python"], "-m", "venv", str(folder)])
        index = ["--index-url", source["package_index"]] if source["package_index"] else []
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _output([*pip, *index, "--requirement", str(checkout / "requirements.txt")])
        complete.touch()
    return folder


def _output(command: list[str]) -> str:
    """Return the output of a command. Raise InstallError with its last line if it fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InstallError(f"{command[0]}: {error.strerror}; install it on this machine") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise InstallError(f"{' '.join(command[:4])}: {last[:300]}")
    return done.stdout.strip()
