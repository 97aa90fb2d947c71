"""The plan of `gpufleet preview` and what Pulumi's real engine receives in a preview: the same, field by field."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from pulumi.runtime.proto import resource_pb2

from gpufleet_stacks.settings.problems import NAMESPACE
from gpufleet_stacks.settings.stack_file import stack_files
from gpufleet_tools.diff.replacement import changed, written
from gpufleet_tools.plan import recorder, stack
from tests import engine
from tests.conftest import ROOT

MISSING = engine.missing()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing"),
]

FILES = [
    *stack_files(ROOT),
    *stack_files(ROOT / "examples/a10"),
    *sorted((ROOT / "tests/settings").glob("*.ok.yaml")),
]

PACKAGES = ("aws", "command", "eks", "kubernetes")

MONITOR = "/pulumirpc.ResourceMonitor/"

# Where in the program a resource is made, and what the engine and the SDK agree on among themselves.
NOT_COMPARED = ("sourcePosition", "stackTrace", "parentStackTraceHandle", "packageRef")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder for one stack, and providers that echo."""
    for name in ("Pulumi.yaml", "components", "stacks"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    for package in PACKAGES:
        program = tmp_path / "bin" / f"pulumi-resource-{package}"
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name('echo_provider.py')}\n")
        program.chmod(0o755)
    return tmp_path


def received(project: Path, read: stack.Stack) -> list[Mapping[str, Any]]:
    """Requests that the engine's monitor receives from the program, in a preview of that stack."""
    log = project / "grpc.json"
    # The program in this very environment: a virtual environment that Pulumi.yaml names is not there.
    described = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    described["runtime"] = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
    (project / "Pulumi.yaml").unlink()
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(described))
    engine.pulumi(project, "stack", "init", "lab")
    values = {f"{NAMESPACE}:{key}": value for key, value in read.file.values.items()}
    config = {**read.file.foreign, **values}
    stack_file = project / "Pulumi.lab.yaml"
    salt = yaml.safe_load(stack_file.read_text())
    stack_file.write_text(yaml.safe_dump({**salt, "config": config}, sort_keys=False))
    secrets = [f"--secret={NAMESPACE}:{key}={stack.STAND_IN}" for key in read.settings.secret_keys()]
    if secrets:
        engine.pulumi(project, "config", "set-all", "--stack", "lab", *secrets)
    path = os.pathsep.join([str(project / "bin"), os.environ["PATH"]])
    engine.pulumi(project, "preview", "--stack", "lab", environment={"PATH": path, "PULUMI_DEBUG_GRPC": str(log)})
    return [json.loads(line) for line in log.read_text().splitlines()]


def registrations(entries: list[Mapping[str, Any]]) -> list[Any]:
    """The program's registrations among the entries of the log; those of a provider for its component are left out."""
    requests: list[Any] = []
    for entry in entries:
        method = entry["method"].removeprefix(MONITOR)
        if method not in ("RegisterResource", "ReadResource") or entry["progress"] != "request_started":
            continue
        message = getattr(resource_pb2, f"{method}Request")()
        json_format.ParseDict(entry["request"], message, ignore_unknown_fields=True)
        if method == "RegisterResource" and not (message.custom or message.remote) and message.type[:4] == "eks:":
            continue
        requests.append(message)
    return requests


def compared(requests: list[Any]) -> dict[str, Any]:
    """Fields of each registration, by type and name."""
    found = {}
    for request in requests:
        fields = json_format.MessageToDict(request)
        for field in NOT_COMPARED:
            fields.pop(field, None)
        # Sets, sent in no order.
        for holder, key in ((fields, "dependencies"), *((each, "urns") for each in _by_property(fields))):
            if key in holder:
                holder[key].sort()
        found[f"{request.type}::{request.name}"] = fields
    return found


def _by_property(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(fields.get("propertyDependencies", {}).values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_engine_receives_what_the_plan_says(file: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "Pulumi.lab.yaml").write_text(file.read_text())
    read = stack.read(project, "lab")
    kept: list[Any] = []

    class Keeping(recorder._Monitor):
        """The recorder, keeping requests as they are."""

        def _keep(self, request: Any) -> str:
            kept.append(request)
            return super()._keep(request)

    monkeypatch.setattr(recorder, "_Monitor", Keeping)
    plan = read.plan()
    (project / "Pulumi.lab.yaml").unlink()
    there = compared(registrations(received(project, read)))
    here = compared(kept)
    assert here.keys() == there.keys()
    assert [f"{key}: {written(path)}" for key in here for path in changed(here[key], there[key])] == []
    assert "4dabf18193072939515e22adb298388d" not in repr(plan.resources)
