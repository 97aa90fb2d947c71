"""One stack in a sandbox whose ARC is simulated, and one whose ARC is real, with the same operations for tests."""

from __future__ import annotations

import abc
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.sandbox import arc_stand_in, lifecycle, real_arc, state
from gpufleet_tools.sandbox.arc import programs
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.rehearsal import CHARTS
from tests.conftest import ROOT

OLD, NEW = "0.13.1", "0.14.2"
"""Versions of the upgrade tests."""


def missing(*versions: str) -> list[str]:
    """Variables that name folders of ARC's charts and programs and are not set, and missing programs of versions."""
    found = [f"{name} is not set" for name in (programs.ARC, CHARTS) if name not in os.environ]
    for version in () if found else versions:
        try:
            programs.find(version)
        except SandboxError as error:
            found.append(str(error))
    return found


def requires_arc(*versions: str) -> pytest.MarkDecorator:
    """Skip tests where ARC's own charts and programs are not here."""
    absent = missing(*versions)
    return pytest.mark.skipif(bool(absent), reason=f"ARC itself is not here: {'; '.join(absent)}")


REQUIRES_ARC = requires_arc()

MI300 = (ROOT / "Pulumi.mi300.yaml").read_text()
FIRST, SECOND = "linux-mi300-gpu-2", "mi300-cluster"
PATIENCE = 120.0
SCALE_SET = ("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
DEPLOYMENT = ("apps/v1", "Deployment")

Manifest = Mapping[str, Any]


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.2)


@dataclass
class Fleet(abc.ABC):
    """A stack that is up."""

    root: Path
    """Project folder."""

    runs_arc = False

    @property
    def stack(self) -> Stack:
        return stack.read(self.root, "mi300")

    @property
    def kubeconfig(self) -> Path:
        return lifecycle.running(self.stack).kubeconfig

    def up(self, text: str = MI300, **jobs: int) -> None:
        """Bring up this stack file, with jobs by label; none for the others."""
        (self.root / "Pulumi.mi300.yaml").write_text(text)
        read = self.stack
        mix = dict.fromkeys(read.settings.runners, 0) | {name.replace("_", "-"): count for name, count in jobs.items()}
        entries = [f"{label}={count}" for label, count in mix.items()]
        lifecycle.up(read, read.plan(), None, entries, runs_arc=self.runs_arc)

    def listed(self, kind: tuple[str, str]) -> list[dict[str, Any]]:
        return api_server.listed(self.kubeconfig, kind)[0]

    def runners(self, label: str) -> dict[str, str]:
        """The image of each runner pod of a label that is not about to end, by UID."""
        return {
            each["metadata"]["uid"]: next(one["image"] for one in each["spec"]["containers"] if one["name"] == "runner")
            for each in self.listed(("v1", "Pod"))
            if state.label_of(each) == label
            and "deletionTimestamp" not in each["metadata"]
            and each["status"].get("phase") == "Running"
        }

    def scale_set(self, label: str) -> dict[str, Any] | None:
        """ARC's object of a label."""
        return next((each for each in self.listed(SCALE_SET) if each["metadata"]["name"] == label), None)

    def delete(self, manifest: Manifest) -> None:
        with api_server.connected(self.kubeconfig) as api:
            metadata = manifest["metadata"]
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
            api.call("DELETE", api.resource(manifest).path(metadata["namespace"], metadata["name"]), body=body)

    def apply(self, *manifests: Manifest) -> None:
        objects.apply(self.kubeconfig, manifests, "mi300")

    @abc.abstractmethod
    def next_job(self, label: str) -> None:
        """A job of a label ends, and another one begins."""

    @abc.abstractmethod
    def installed(self) -> contextlib.AbstractContextManager[tuple[Manifest, Manifest, Manifest]]:
        """ARC's controller, and the scale set and the credentials of SECOND, as ARC's charts and the stack install
        them."""


@dataclass
class Simulated(Fleet):
    """ARC is simulated."""

    def next_job(self, label: str) -> None:
        (pod, *_) = (each for each in self.listed(("v1", "Pod")) if state.label_of(each) == label)
        self.delete({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]})

    @contextlib.contextmanager
    def installed(self) -> Iterator[tuple[Manifest, Manifest, Manifest]]:
        self.up()
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("arc-systems", "project")
        ]
        self.apply(_DEFINITION, *namespaces, _CONTROLLER, _CREDENTIALS, _ROLE, _SCALE_SET)
        with arc_stand_in.simulated(self.kubeconfig):
            yield _CONTROLLER, _SCALE_SET, _CREDENTIALS


@dataclass
class Real(Fleet):
    """ARC's own programs run."""

    runs_arc = True

    @property
    def github(self) -> Control:
        return Control.of(lifecycle.running(self.stack))

    def jobs(self, label: str, state: str) -> int:
        return sum((job["label"], job["state"]) == (label, state) for job in self.github.call("state")["jobs"])

    def next_job(self, label: str) -> None:
        until(lambda: self.jobs(label, "running"))
        self.github.call("queue", label=label, count=1, seconds=None)
        assert self.github.call("end", label=label, count=1, result="succeeded") == 1

    @contextlib.contextmanager
    def installed(self) -> Iterator[tuple[Manifest, Manifest, Manifest]]:
        self.up()
        plan = self.stack.plan()
        found = real_arc.installed_objects(plan)
        (controller,) = (each for each in found if each["kind"] == "Deployment")
        (scale_set,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (SCALE_SET[1], SECOND))
        own = real_arc.with_app_keys(lifecycle.own_objects(plan), real_arc.folder_of(lifecycle.running(self.stack)))
        (credentials,) = (each for each in own if each["metadata"]["name"] == scale_set["spec"]["githubConfigSecret"])
        yield controller, scale_set, credentials


# -- what the charts install, as far as the simulated controller reads it ---------------------------------------------

_DEFINITION: Manifest = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "autoscalingrunnersets.actions.github.com"},
    "spec": {
        "group": "actions.github.com",
        "names": {"kind": "AutoscalingRunnerSet", "plural": "autoscalingrunnersets"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}

_CONTROLLER: Manifest = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "arc-gha-rs-controller",
        "namespace": "arc-systems",
        "labels": {"app.kubernetes.io/part-of": "gha-rs-controller"},
    },
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "arc"}},
        "template": {
            "metadata": {"labels": {"app": "arc"}},
            "spec": {"containers": [{"name": "manager", "image": "manager"}]},
        },
    },
}

_CREDENTIALS: Manifest = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "credentials", "namespace": "project"},
    "data": {"github_token": "eA=="},
}

_ROLE: Manifest = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "manager", "namespace": "project", "finalizers": [arc_stand_in.PROTECTION]},
    "rules": [],
}

_SCALE_SET: Manifest = {
    "apiVersion": SCALE_SET[0],
    "kind": SCALE_SET[1],
    "metadata": {
        "name": SECOND,
        "namespace": "project",
        "annotations": {"actions.github.com/cleanup-manager-role-name": "manager"},
    },
    "spec": {"githubConfigSecret": "credentials"},
}
