"""Adoption of the whole program: a project of somebody else's, which has nothing of gpufleet but its wheel."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest

from tests.adoption import ci_fleet
from tests.adoption.ci_fleet import LABEL
from tests.adoption.environments import Environment
from tests.conftest import ROOT

pytestmark = pytest.mark.install

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
"""The caller's cache, in which the sandbox's programs may have been built already."""


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    """The project, in a folder of its own."""
    return ci_fleet.written(tmp_path / "ci-fleet")


def test_check_finds_settings_sound(adopter: Environment, project: pathlib.Path) -> None:
    inside = adopter.run("gpufleet", "check", "--policy", cwd=project)
    assert (inside.code, inside.out, inside.err) == (0, "lab: no findings\n", "")
    assert adopter.run("gpufleet", "-C", "ci-fleet", "check", "--policy", cwd=project.parent) == inside


def test_a_secret_that_is_not_set_is_named_with_its_whole_key(adopter: Environment, project: pathlib.Path) -> None:
    ci_fleet.edited(project, "Pulumi.lab.yaml", "  gpu-runners:lab-token: {secure: v1:first}\n", "")
    ended = adopter.run("gpufleet", "check", cwd=project)
    assert ended.code == 1
    assert "the secret 'lab-token' is not set; set it: pulumi config set --secret gpu-runners:lab-token" in ended.out


@pytest.mark.parametrize("options", [[], ["-C", "ci-fleet"]])
def test_preview_has_their_resource_behind_the_scale_set(
    options: list[str], adopter: Environment, project: pathlib.Path
) -> None:
    ended = adopter.run(
        "gpufleet", *options, "preview", "lab", "--format", "json", cwd=project.parent if options else project
    )
    assert (ended.code, ended.err) == (0, "")
    resources = {each["name"]: each for each in json.loads(ended.out)["resources"] if each["name"] in ("alerts", LABEL)}
    alerts = resources["alerts"]
    assert alerts["inputs"]["data"] == {"to": "oncall@example.test", "team": "ci", "room": "42"}
    assert alerts["urn"].startswith("urn:pulumi:lab::ci-fleet::")
    assert [urn.rpartition("::")[2] for urn in alerts["waitsFor"]] == [LABEL]


def test_capacity_and_labels(adopter: Environment, project: pathlib.Path) -> None:
    assert (
        "all labels at their max fit at the same time: 4 of 8 GPUs"
        in adopter.run("gpufleet", "capacity", "lab", cwd=project).out
    )
    assert f"| `{LABEL}` | 1 AMD MI300X |" in adopter.run("gpufleet", "labels", cwd=project).out


def test_hosts_says_what_it_needs(adopter: Environment, project: pathlib.Path) -> None:
    ended = adopter.run("gpufleet", "hosts", "lab", cwd=project)
    assert ended.code == 2
    assert ended.err.endswith("cluster.ssh: is missing; add the user who logs in to the machines: ssh: {user: NAME}\n")


def test_pins_are_those_of_installed_files(adopter: Environment, project: pathlib.Path) -> None:
    ended = adopter.run("gpufleet", "pins", "--format", "json", "--on", "2026-12-01", cwd=project)
    assert ended.err == ""
    assert any(pin["name"] == "ARC_VERSION" for pin in json.loads(ended.out)["pins"])


def test_the_schema_for_editors(adopter: Environment, project: pathlib.Path) -> None:
    ended = adopter.run("gpufleet", "schema", "--out", "settings.schema.json", cwd=project)
    assert (ended.code, ended.out) == (0, "JSON Schema of stack files written to settings.schema.json\n")
    ours = ROOT / "stacks/gpufleet_stacks/settings/settings.schema.json"
    assert (project / "settings.schema.json").read_bytes() == ours.read_bytes()
    assert adopter.run("gpufleet", "schema", cwd=project).out == ours.read_text()


def test_a_sandbox_without_its_extra_names_it(adopter: Environment, project: pathlib.Path) -> None:
    ended = adopter.run("gpufleet", "sandbox", "up", "lab", cwd=project)
    assert ended.code == 2
    assert ended.err == (
        "gpufleet: the sandbox requires kubernetes, which is not installed; run "
        "pip install 'gpufleet[sandbox]' (in a checkout of gpufleet: make up)\n"
    )


READ_THEIRS = """
import sys
from kubernetes import client, config
config.load_kube_config(sys.argv[1])
print(client.CoreV1Api().read_namespaced_config_map("alerts", "kube-system").data["to"])
"""


def test_the_sandbox_has_their_resource_too(
    adopter_with_sandbox: Environment, project: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    caches = {"XDG_CACHE_HOME": str(CACHE), "XDG_STATE_HOME": str(tmp_path / "state")}

    def gpufleet(*arguments: str, cwd: pathlib.Path = project) -> str:
        ended = adopter_with_sandbox.run("gpufleet", *arguments, cwd=cwd, more=caches, timeout=900)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    try:
        assert "control plane created, 13 objects created: 2 runner pods running" in gpufleet("sandbox", "up", "lab")
        outside = ("-C", "ci-fleet", "sandbox")
        assert "2 runner pods running" in gpufleet(*outside, "status", "lab", cwd=project.parent)
        kubeconfig = gpufleet(*outside, "kubeconfig", "lab", cwd=project.parent).strip()
        theirs = adopter_with_sandbox.run("python", "-c", READ_THEIRS, kubeconfig, cwd=tmp_path)
        assert theirs.out == "oncall@example.test\n", theirs.err
    finally:
        assert gpufleet("sandbox", "down", "lab") == "the sandbox of lab was removed\n"


# -- the example ------------------------------------------------------------------------------------------------------


def test_the_example_needs_nothing_but_the_wheel(
    adopter: Environment, tmp_path: pathlib.Path, wheel: pathlib.Path
) -> None:
    folder = tmp_path / "a10"
    shutil.copytree(ROOT / "examples/a10", folder)
    assert (folder / "requirements.txt").read_text() == f"gpufleet=={wheel.name.split('-')[1]}\n"
    assert adopter.run("gpufleet", "preview", "a10", "--on", "2026-12-01", cwd=folder).code == 1
    assert "1 finding, 3 acknowledged" in adopter.run("gpufleet", "check", "--on", "2026-12-01", cwd=folder).out
    first = (folder / "Pulumi.a10.yaml").read_text().splitlines()[0]
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert adopter.run("gpufleet", "schema", "--out", schema, cwd=folder).code == 0
    assert (folder / schema).is_file()
