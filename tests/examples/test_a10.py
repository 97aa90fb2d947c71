"""The example on NVIDIA's A10: a project of its own that runs this one's program."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import Plan, revealed
from tests.conftest import ROOT, Gpufleet
from tests.recording import release

FOLDER = ROOT / "examples/a10"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return stack.read(FOLDER, "a10").plan()


def test_only_secrets_are_left_to_be_set(gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", FOLDER, "check", "a10", "--on", "2026-12-01")
    assert ended.code == 1
    findings = re.findall(r"\[(.*)\]$", ended.out, re.MULTILINE)
    assert findings == ["missing-secret"]
    assert "1 finding, 3 acknowledged" in ended.out


def test_it_is_previewed(gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", FOLDER, "preview", "a10", "--on", "2026-12-01")
    assert "NvidiaContainerToolkit nvidia-container-toolkit" in ended.out
    assert "AmdGpuDevicePlugin" not in ended.out


def test_the_toolkit_is_pinned_before_anything_is_on_the_cluster(plan: Plan) -> None:
    commands = {each.urn: each for each in plan.resources if each.type == "command:remote:Command"}
    assert {revealed(each.inputs["connection"])["host"] for each in commands.values()} == {
        "203.0.113.11",
        "203.0.113.12",
        "203.0.113.21",
    }
    assert all("version=1.17.8-1\n" in each.inputs["stdin"] for each in commands.values())
    (provider,) = (each for each in plan.resources if each.type == "pulumi:providers:kubernetes")
    assert set(provider.depends_on) == set(commands)
    values = release(plan, "gpu-operator").values
    assert (values["driver"], values["toolkit"], values["cdi"]) == ({"enabled": False},) * 3


def test_runners_are_in_the_group_and_ask_for_nvidias_gpus(plan: Plan) -> None:
    for label, gpus in (("oracle-vm-gpu-a10-1", "1"), ("oracle-vm-gpu-a10-2", "2")):
        values = release(plan, label).values
        assert values["runnerGroup"] == "GPUs"
        (runner,) = (c for c in values["template"]["spec"]["containers"] if c["name"] == "runner")
        assert str(runner["resources"]["limits"]["nvidia.com/gpu"]) == gpus


def test_jobs_of_its_readme_have_labels() -> None:
    served = set(stack.read(FOLDER, "a10").settings.runners)
    assert set(re.findall(r"oracle-vm-gpu-[a-z0-9-]+", (FOLDER / "README.md").read_text())) == served


@pytest.mark.process
def test_the_patch_gives_every_pod_the_runtime_class(tmp_path: pathlib.Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not on PATH")
    pod = {"template": {"spec": {"template": {"spec": {"containers": []}}}}}
    runtimes = {"items": [{"spec": {"template": {"spec": {"replicatedJobs": [pod, pod]}}}}] * 2}
    jq = ["jq", "--from-file", str(FOLDER / "nvidia-runtime-class.jq")]
    done = subprocess.run(jq, input=json.dumps(runtimes), capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.count('"runtimeClassName": "nvidia"') == 4


def test_pulumi_takes_its_program_from_its_own_folder() -> None:
    """The engine refuses a `main` outside of the project's folder."""
    project = yaml.safe_load((FOLDER / "Pulumi.yaml").read_text())
    assert "main" not in project
    assert (FOLDER / "__main__.py").is_file()
