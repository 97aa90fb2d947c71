"""A project of somebody else's: their name, their stack file, their modules, and the whole program from the package."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tests.stack_files import lab

LABEL = "lab-gpu-1"

MAIN = """\
import pulumi_kubernetes as kubernetes
from components.alerts import alerts_to
from gpufleet_stacks.program import run
from pulumi import ResourceOptions
from stacks import TEAM
from tools import ROOM

fleet = run()
kubernetes.core.v1.ConfigMap(
    "alerts",
    metadata={"name": "alerts", "namespace": "kube-system"},
    data={"to": alerts_to(), "team": TEAM, "room": ROOM},
    opts=ResourceOptions(provider=fleet.provider, depends_on=[fleet.runners.scale_sets["lab-gpu-1"].ready]),
)
"""

FILES = {
    "Pulumi.yaml": "name: ci-fleet\nruntime: {name: python, options: {toolchain: pip, virtualenv: .venv}}\n",
    "Pulumi.lab.yaml": lab(
        f"    {LABEL}: {{project: lab, gpus: 1, cpu: 16, memory: 200Gi, max: 4}}\n",
        further="  ci-fleet:alertsTo: oncall@example.test\n  ci-fleet:pagerKey: {secure: v1:pager}\n",
    ),
    "__main__.py": MAIN,
    "requirements.txt": "gpufleet==0.2.0\n",
    ".gitignore": "__pycache__/\n",
    # Folders that are called as the source roots of gpufleet's own repository are.
    "components/__init__.py": "",
    "components/alerts.py": "import pulumi\n\n\ndef alerts_to():\n    return pulumi.Config().require('alertsTo')\n",
    "stacks/__init__.py": 'TEAM = "ci"\n',
    "tools/__init__.py": "import pathlib\n\nROOM = pathlib.Path('room.txt').read_text().strip()\n",
    "room.txt": "42\n",
}


def written(folder: pathlib.Path) -> pathlib.Path:
    """The project in a folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def edited(folder: pathlib.Path, file: str, before: str, after: str) -> None:
    """Replaces a text in a file of the project."""
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, after))


def git(folder: pathlib.Path, *arguments: str) -> None:
    """Runs git with nobody's configuration."""
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    someone = ["-c", "user.name=Test", "-c", "user.email=test@example.test"]
    command = ["git", *someone, *arguments]
    subprocess.run(command, cwd=folder, env=os.environ | nobody, check=True, capture_output=True)


def committed(folder: pathlib.Path) -> None:
    """Commits the project as it is."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The fleet")
