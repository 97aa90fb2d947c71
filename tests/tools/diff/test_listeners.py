"""Listeners that a change restarts: read from plans of one fleet before and after."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gpufleet.arc import (
    ArcController,
    ArcControllerArgs,
    ExistingSecret,
    GithubApp,
    GithubToken,
    RunnerProject,
    RunnerProjectArgs,
    RunnerResources,
    RunnerScaleSet,
    RunnerScaleSetArgs,
)
from gpufleet_tools.diff.environment.listeners import listener_restarts
from gpufleet_tools.diff.evaluation import EvaluatedResource, _resource
from tests.recording import on_cluster, recorded

APP = GithubApp(secret_name="app", app_id="1", installation_id="2", private_key="key")
EXISTING = ExistingSecret(name="theirs", revision="1")


def fleet(
    app: Any = APP, existing: ExistingSecret = EXISTING, version: str = "0.14.2", **scale_set: Any
) -> list[EvaluatedResource]:
    """Two labels of a project with an App, of which `scale_set` changes one, and one of a project with a Secret of its
    own."""

    def build() -> None:
        opts = on_cluster()
        controller = ArcController("arc", ArcControllerArgs(version=version), opts)
        for name, credentials, labels in (("one", app, ("a", "b")), ("two", existing, ("c",))):
            args = RunnerProjectArgs(config_url="https://github.com/o", namespace=name, credentials=credentials)
            project = RunnerProject(name, args, opts)
            for label in labels:
                arguments: dict[str, Any] = {
                    "label": label,
                    "project": project.reference,
                    "controller": controller.reference,
                    "min_runners": 0,
                    "max_runners": 2,
                    "resources": RunnerResources(cpu="1", memory="1Gi"),
                }
                changes = scale_set if label == "a" else {}
                RunnerScaleSet(label, RunnerScaleSetArgs(**(arguments | changes)), opts)

    return [_resource(resource, resource.inputs, "key") for resource in recorded(build).resources]


BEFORE = fleet()


def test_nothing_restarts_where_nothing_changes() -> None:
    assert listener_restarts(BEFORE, BEFORE) == []


@pytest.mark.parametrize(
    ("after", "labels"),
    [
        ({"app": dataclasses.replace(APP, private_key="rotated")}, ["a", "b"]),
        ({"app": dataclasses.replace(APP, app_id="9")}, ["a", "b"]),
        ({"app": GithubToken(secret_name="app", token="ghp_1")}, ["a", "b"]),
        ({"existing": ExistingSecret(name="theirs", revision="2")}, ["c"]),
        ({"max_runners": 3}, ["a"]),
        ({"image": "another"}, []),
        ({"app": dataclasses.replace(APP, secret_name="other")}, []),
        ({"version": "0.14.1"}, []),
    ],
    ids=["key", "App", "token", "revision", "max", "image", "another secret", "another version"],
)
def test_what_changes_listeners_and_no_runners(after: dict[str, Any], labels: list[str]) -> None:
    assert listener_restarts(BEFORE, fleet(**after)) == labels
