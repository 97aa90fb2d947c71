"""What the engine is given in a rehearsal: the stack's program, with nothing that is done on machines."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml

from fleet import recorder, stack
from sandbox.control_plane import ControlPlane
from sandbox.rehearsal import Rehearsal
from stacks.fault import PROJECT
from tests.conftest import ROOT, MakeProject

NVIDIA = (ROOT / "tests/settings/kubespray.ok.yaml").read_text()


@pytest.mark.parametrize("text", [(ROOT / "Pulumi.mi300.yaml").read_text(), NVIDIA], ids=["mi300", "nvidia"])
def test_no_command_is_in_the_rehearsed_program(
    text: str, project: MakeProject, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = stack.read(project({"lab": text}), "lab")
    assert any(each.type.startswith("command:") for each in read.plan().resources)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\n")
    control_plane: Any = ControlPlane.__new__(ControlPlane)
    monkeypatch.setattr(ControlPlane, "directory", tmp_path, raising=False)
    rehearsal = Rehearsal(read, control_plane)
    rehearsal.folder.mkdir()
    rehearsal._write_stack_file()
    config = yaml.safe_load(rehearsal._stack_file.read_text())["config"]
    secrets = dict.fromkeys((f"{PROJECT}:{key}" for key in rehearsal.secret_keys()), "stand-in")
    plan = recorder.record(read.root, "lab", config, secrets=secrets)
    types = {each.type for each in plan.resources}
    assert "kubernetes:helm.sh/v3:Release" in types
    assert not [kind for kind in types if "command" in kind or "Kubespray" in kind or "Toolkit" in kind]
