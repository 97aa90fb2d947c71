"""What the engine is given in a rehearsal: the stack's program, with nothing that is done on machines."""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from gpufleet_stacks.settings.problems import NAMESPACE
from gpufleet_tools.plan import recorder, stack
from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.rehearsal import Rehearsal
from tests.conftest import ROOT, MakeProject

NVIDIA = (ROOT / "tests/settings/kubespray.ok.yaml").read_text()


@pytest.mark.parametrize("text", [(ROOT / "Pulumi.mi300.yaml").read_text(), NVIDIA], ids=["mi300", "nvidia"])
def test_no_command_is_in_the_rehearsed_program(text: str, project: MakeProject, tmp_path: pathlib.Path) -> None:
    read = stack.read(project({"mi300": text}), "mi300")
    assert any(each.type.startswith("command:") for each in read.plan().resources)
    rehearsal = Rehearsal(read, ControlPlane("mi300", tmp_path, Binaries(tmp_path)))
    rehearsal.folder.mkdir()
    rehearsal._write_stack_file()
    config = yaml.safe_load(rehearsal._stack_file.read_text())["config"]
    secrets = dict.fromkeys((f"{NAMESPACE}:{key}" for key in rehearsal.secret_keys()), "stand-in")
    plan = recorder.record(read.root, "mi300", config, secrets=secrets)
    types = {each.type for each in plan.resources}
    assert "kubernetes:helm.sh/v3:Release" in types
    assert not [kind for kind in types if "command" in kind or "Kubespray" in kind or "Toolkit" in kind]


def test_a_secret_that_no_setting_asks_for_any_more_is_not_kept(project: MakeProject, tmp_path: pathlib.Path) -> None:
    """The program refuses one, and the rehearsal's own file is nobody's to mend."""
    read = stack.read(project({"mi300": (ROOT / "Pulumi.mi300.yaml").read_text()}), "mi300")
    rehearsal = Rehearsal(read, ControlPlane("mi300", tmp_path, Binaries(tmp_path)))
    rehearsal.folder.mkdir()
    asked, gone = f"{NAMESPACE}:{min(rehearsal.secret_keys())}", f"{NAMESPACE}:gone-privateKey"
    secret = {"secure": "v1:encrypted"}
    rehearsal._stack_file.write_text(yaml.safe_dump({"config": {asked: secret, gone: secret}}))
    rehearsal._write_stack_file()
    config = yaml.safe_load(rehearsal._stack_file.read_text())["config"]
    assert config[asked] == secret
    assert gone not in config


def test_only_the_plugins_of_a_rehearsal_are_ended(tmp_path: pathlib.Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    plugin, script, editor = (tmp_path / name for name in ("pulumi-resource-x", "pulumi-language-x", "editor"))
    for copy in (plugin, editor):
        shutil.copy(sleep, copy)
    script.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    script.chmod(0o755)
    started = {
        name: subprocess.Popen([program, "60"], env={"PULUMI_BACKEND_URL": value})
        for name, program, value in (
            ("our plugin", plugin, "file:///ours"),
            ("our script", script, "file:///ours"),
            ("another's plugin", plugin, "file:///another's"),
            ("no plugin", editor, "file:///ours"),
        )
    }
    try:
        assert processes.kill_with("PULUMI_BACKEND_URL", "file:///ours", "pulumi-") == 2
        ended = {name for name, child in started.items() if child.poll() == -signal.SIGKILL}
        assert ended == {"our plugin", "our script"}
    finally:
        for child in started.values():
            child.kill()
            child.wait()
