"""Pulumi's real engine on a project in a folder."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping

from tests.conftest import PYTHONPATH


def missing(*providers: str) -> list[str]:
    """Programs that are not on PATH, of those that a project with these providers takes."""
    programs = ("pulumi", "pulumi-language-python", *(f"pulumi-resource-{name}" for name in providers))
    return [program for program in programs if shutil.which(program) is None]


def pulumi(
    folder: pathlib.Path,
    *arguments: str,
    stdin: str = "",
    well: bool = True,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command of Pulumi prints. Home, state and passphrase are the folder's own, and it has to end as expected.

    It runs the components of this checkout, reaches no cluster and asks no agent.
    """
    given = isolated(folder) | OWN_PACKAGES | (environment or {})
    return run(folder, *arguments, stdin=stdin, well=well, environment=given)


OWN_PACKAGES = {"PULUMI_PYTHON_CMD": sys.executable, "PYTHONPATH": PYTHONPATH}
"""Environment of a program that runs with the packages of this very process."""


def isolated(folder: pathlib.Path) -> dict[str, str]:
    """The environment of a user with a state of their own, in the folder, and no cluster, agent or Python packages."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = os.environ | {
        "PULUMI_HOME": str(home),
        "PULUMI_BACKEND_URL": f"file://{home}",
        "PULUMI_CONFIG_PASSPHRASE": "passphrase",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "KUBECONFIG": os.devnull,
        "NO_COLOR": "1",
    }
    without = ("RUNNER_ENVIRONMENT", "SSH_AUTH_SOCK", "PYTHONPATH", "VIRTUAL_ENV", "PULUMI_PYTHON_CMD")
    return {key: value for key, value in environment.items() if key not in without}


def run(
    folder: pathlib.Path, *arguments: str, environment: Mapping[str, str], stdin: str = "", well: bool = True
) -> str:
    """What a command of Pulumi prints in that environment. It has to end as expected."""
    ended = subprocess.run(
        ["pulumi", *arguments, "--non-interactive", "--cwd", str(folder)],
        env=dict(environment),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode == 0) == well, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def previewed(folder: pathlib.Path, *arguments: str) -> dict[str, str]:
    """What a preview would do to each resource, by URN, sameness left out."""
    printed = pulumi(folder, "preview", "--json", *arguments)
    steps = json.loads(printed.partition("\n}")[0] + "\n}")["steps"]
    return {step["urn"]: step["op"] for step in steps if step["op"] != "same"}
