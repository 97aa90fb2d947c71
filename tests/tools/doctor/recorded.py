"""Snapshots of real clusters: `tests/tools/doctor/recorded/*.json`, from the sandbox with ARC's own programs.

    python -m tests.tools.doctor.recorded KUBECONFIG NAME

writes another one, of the stack mi300. What no judgement reads is left out.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import json
import pathlib
import re
import sys
from typing import Any

from gpufleet_tools.doctor import diagnosis
from gpufleet_tools.doctor.declared import Declared, declared
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.reading import Snapshot
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.doctor.view import View
from gpufleet_tools.plan import stack
from tests.conftest import ROOT

FOLDER = pathlib.Path(__file__).with_suffix("")

_LEFT_OUT = {
    *("env", "volumeMounts", "resources", "imagePullPolicy", "listenerMetrics", "metrics", "ephemeralRunnerSpec"),
    *("volumes", "initContainers", "tolerations", "affinity", "securityContext", "nodeSelector", "nodeInfo", "images"),
    *("terminationMessagePath", "terminationMessagePolicy", "restartPolicy", "schedulerName", "dnsPolicy", "ports"),
    *("serviceAccount", "serviceAccountName", "enableServiceLinks", "preemptionPolicy", "priority", "command"),
    *("lastProbeTime", "lastTransitionTime", "lastHeartbeatTime", "listenerTemplate", "generateName", "workingDir"),
}


@functools.cache
def mi300() -> Declared:
    """What the committed stack mi300 declares."""
    read = stack.read(ROOT, "mi300")
    found = declared(read, read.plan())
    assert found is not None
    return found


@functools.cache
def _content(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def snapshot(name: str = "healthy") -> Snapshot:
    """A recorded snapshot, which the caller may change."""
    content = copy.deepcopy(_content(name))
    return Snapshot(
        now=datetime.datetime.fromisoformat(content["now"]),
        kubernetes=content["kubernetes"],
        lists=content["lists"],
        crds=content["crds"],
        secrets={tuple(key.split("/")): value for key, value in content["secrets"].items()},  # type: ignore[misc]
        logs=content["logs"],
    )


def findings(of: Snapshot, **changes: Any) -> list[Finding]:
    """The findings about a snapshot, some of whose fields may be others. Their commands are for the current context."""
    taken = dataclasses.replace(of, **changes)
    here, elsewhere = (diagnosis.findings(View(mi300(), taken, each)) for each in (Target(), ELSEWHERE))
    for one, other in zip(here, elsewhere, strict=True):
        assert [with_options(each) for each in one.commands] == [*other.commands], "every command selects its cluster"
    return here


ELSEWHERE = Target(pathlib.Path("/a b/config"), "mi300")


def with_options(command: str) -> str:
    """The command for the cluster ELSEWHERE."""
    command = re.sub(r"(^|\| )kubectl ", r"\1kubectl --kubeconfig '/a b/config' --context mi300 ", command)
    return re.sub("^helm get ", "helm --kubeconfig '/a b/config' --kube-context mi300 get ", command)


def names(found: list[Finding]) -> list[tuple[str, str]]:
    """Names and subjects of findings."""
    return [(each.name, each.subject) for each in found]


def _pruned(value: Any) -> Any:
    """The value without what no judgement reads."""
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _pruned(item) for key, item in value.items() if key not in _LEFT_OUT}
    if "managedFields" in kept:
        kept["managedFields"] = [
            {"manager": each["manager"], "time": each["time"], "fieldsV1": _shallow(each.get("fieldsV1", {}))}
            for each in kept["managedFields"]
            if "time" in each
        ]
    return kept


def _shallow(fields: Any) -> Any:
    """Managed fields without those below the second level."""
    return {part: {name: {} for name in below if name != "."} for part, below in fields.items() if part != "f:metadata"}


def record(kubeconfig: pathlib.Path, name: str) -> None:
    """Write a snapshot of a running sandbox of mi300."""
    found = diagnosis.diagnose(stack.read(ROOT, "mi300"), kubeconfig)
    taken = found.view.snapshot
    content = {
        "now": taken.now.isoformat(),
        "kubernetes": taken.kubernetes,
        "lists": {key: _pruned([*objects]) for key, objects in taken.lists.items()},
        "crds": taken.crds,
        "secrets": {"/".join(key): _pruned(value) for key, value in taken.secrets.items()},
        # The folder of the machine on which ARC was built.
        "logs": {pod: re.sub(r"source=\S+ ", "", text) for pod, text in taken.logs.items()},
    }
    content["lists"]["events"] = content["lists"]["events"][-6:]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(names(list(found.findings)))


if __name__ == "__main__":
    record(pathlib.Path(sys.argv[1]), sys.argv[2])
