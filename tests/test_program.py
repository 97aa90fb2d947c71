"""The program as Pulumi's Python language host runs it, in an interpreter of its own: from a checkout that nobody has
installed, beside another one that somebody has, and from dependencies alone."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from gpufleet_tools.plan import stack
from tests.conftest import PYTHONPATH, ROOT

pytestmark = pytest.mark.process

STACK = "mi300"

SECRET_KEYS = ("gpu-runners:gpu-test-cluster-privateKey", "gpu-runners:ssh-privateKey")

HOST = '''
"""What pulumi-language-python-exec does with a program, with a monitor that only counts."""
import asyncio, json, os, runpy, sys

program, *packages = sys.argv[1:]
sys.path += packages

import pulumi
from pulumi.runtime import mocks, settings
from pulumi.runtime.stack import run_in_stack


class Mocks(mocks.Mocks):
    def __init__(self):
        self.types = []

    def call(self, args):
        return {}

    def new_resource(self, args):
        self.types.append(args.typ)
        return "", {}


async def run(answers):
    monitor = mocks.MockMonitor(answers)
    pulumi.runtime.set_all_config(
        pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env()
    )
    settings.configure(
        mocks.MockSettings(
            monitor=monitor,
            monitor_features=set(monitor.GetDeploymentInfo(None).supportedFeatures),
            engine=mocks.MockEngine(None),
            project="gpu-runners",
            stack="mi300",
            dry_run=True,
            organization="organization",
            root_directory=os.environ["ROOT"],
            callbacks=None,
        )
    )
    await run_in_stack(lambda: runpy.run_path(program, run_name="__main__") and None)


answers = Mocks()
asyncio.run(run(answers))
files = {name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}
ours = ("gpufleet", "gpufleet_stacks", "gpufleet_tools", "tests")
modules = {name: file for name, file in files.items() if name.split(".")[0] in ours}
print(json.dumps({"modules": modules, "types": sorted(answers.types)}))
'''


def engine_configuration() -> dict[str, str]:
    """The environment variables in which the engine hands a stack's configuration to the language host."""
    given = yaml.safe_load((ROOT / f"Pulumi.{STACK}.yaml").read_text())["config"]
    texts = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in given.items()}
    return {
        "PULUMI_CONFIG": json.dumps(texts | dict.fromkeys(SECRET_KEYS, "stand-in")),
        "PULUMI_CONFIG_SECRET_KEYS": json.dumps(SECRET_KEYS),
    }


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """What the program is made of, in another folder: no tests, no command line, nothing installed."""
    folder = tmp_path / "checkout"
    for name in ("components", "stacks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Pulumi.yaml", f"Pulumi.{STACK}.yaml"):
        shutil.copy(ROOT / name, folder)
    return folder


def run(command: Sequence[str | pathlib.Path], folder: pathlib.Path) -> dict[str, Any]:
    """What the language host reports of a program. It runs in the folder of `main`, as with the engine."""
    host = folder / "host.py"
    host.write_text(HOST)
    main = folder / yaml.safe_load((folder / "Pulumi.yaml").read_text())["main"]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [*map(str, command[:2]), str(host), str(main), *map(str, command[2:])],
        cwd=main.parent,
        env=environment | engine_configuration() | {"ROOT": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def packages() -> list[str]:
    """Where dependencies are installed. Named by path, its .pth files are not read, and so no installed checkout is
    found."""
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def assert_runs_from(folder: pathlib.Path, report: dict[str, Any]) -> None:
    modules = report["modules"]
    assert {
        "gpufleet",
        "gpufleet.arc.scale_set",
        "gpufleet_stacks.settings.models.settings",
        "gpufleet_stacks.bare_metal",
    } <= modules.keys()
    assert all(pathlib.Path(file).is_relative_to(folder) for file in modules.values()), modules
    assert report["types"] == sorted(resource.type for resource in stack.read(ROOT, STACK).plan().resources)


def test_it_needs_no_installed_project(checkout: pathlib.Path) -> None:
    """`pulumi install` installs dependencies, not this project."""
    assert_runs_from(checkout, run([sys.executable, "-IS", *packages()], checkout))


def test_its_modules_are_its_own_whatever_is_installed(checkout: pathlib.Path) -> None:
    """Here the environment has an editable install of another checkout: the one that these tests belong to."""
    assert_runs_from(checkout, run([sys.executable, "-I"], checkout))


def test_without_the_program_nothing_of_ours_is_found(checkout: pathlib.Path) -> None:
    """Or else the first test would prove nothing."""
    (checkout / "stacks" / "__main__.py").write_text("import gpufleet\n")
    with pytest.raises(AssertionError, match="No module named 'gpufleet'"):
        run([sys.executable, "-IS", *packages()], checkout)


@pytest.mark.install
def test_the_locked_dependencies_are_all_it_needs(checkout: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The road of a new machine: a virtual environment, requirements.txt and its hashes, and the program."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    requirements = ROOT / "requirements.txt"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", requirements], check=True, timeout=580
    )
    assert_runs_from(checkout, run([python, "-I"], checkout))


# -- components without stacks ----------------------------------------------------------------------------------------

COMPOSED = """
import pulumi
import pulumi_kubernetes as kubernetes

from gpufleet.arc import ControllerReference, ProjectReference, RunnerResources, RunnerScaleSet, RunnerScaleSetArgs

cluster = kubernetes.Provider("somebody-elses", context="theirs")
opts = pulumi.ResourceOptions(providers=[cluster])
namespace = kubernetes.core.v1.Namespace("theirs", metadata={"name": "theirs"}, opts=opts)
runners = RunnerScaleSet(
    "theirs",
    RunnerScaleSetArgs(
        label="their-gpus",
        project=ProjectReference(
            config_url="https://github.com/them", namespace=namespace.metadata.name, credentials_secret="made-by-hand"
        ),
        controller=ControllerReference(service_account="arc-gha-rs-controller", namespace="arc-systems"),
        min_runners=0,
        max_runners=3,
        resources=RunnerResources(cpu="8", memory="64Gi", gpus=1),
    ),
    opts,
)
pulumi.export("label", runners.label)
"""

RECORD = """
import json, pathlib, sys
from gpufleet_tools.plan.recorder import record

recorders = set(sys.modules)
plan = record(pathlib.Path.cwd(), "theirs", {}, secrets={})
print(json.dumps({
    "resources": [[each.type, each.name] for each in plan.resources],
    "exports": plan.exports,
    "stacks": sorted(name for name in set(sys.modules) - recorders if name.split(".")[0] == "gpufleet_stacks"),
}))
"""


def test_a_program_elsewhere_composes_a_scale_set_alone(tmp_path: pathlib.Path) -> None:
    """Components are for reuse: somebody else's program needs none of `stacks`, no settings, no stack file."""
    (tmp_path / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(COMPOSED)
    done = subprocess.run(
        [sys.executable, "-c", RECORD],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "resources": [
            ["kubernetes:helm.sh/v3:Release", "theirs"],
            ["gpu-runners:index:RunnerScaleSet", "theirs"],
            ["kubernetes:core/v1:Namespace", "theirs"],
            ["pulumi:providers:kubernetes", "somebody-elses"],
        ],
        "exports": {"label": "their-gpus"},
        "stacks": [],
    }
