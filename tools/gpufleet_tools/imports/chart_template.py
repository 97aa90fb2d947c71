"""What the chart makes of its values: the pod template with what each container mode adds.

Source: templates/_helpers.tpl and templates/autoscalingrunnerset.yaml of gha-runner-scale-set at 0.14.2.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

Fields = dict[str, Any]
"""A part of a pod, as its YAML has it."""

_WORK = {"name": "work", "mountPath": "/home/runner/_work"}
_SOCKET = {"name": "dind-sock", "mountPath": "/var/run"}
_EXTERNALS = {"name": "dind-externals", "mountPath": "/home/runner/externals"}

HOOKS = {"kubernetes": "/home/runner/k8s/index.js", "kubernetes-novolume": "/home/runner/k8s-novolume/index.js"}
"""Container hooks of the runner, by container mode."""


def rendered(values: Mapping[str, Any]) -> Fields:
    """Return values whose template is the pod that the chart renders; of `containerMode` only what it renders besides
    is left. Sections that are no mappings stay as they are."""
    found: Fields = copy.deepcopy(dict(values))
    template = found.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    mode = found.get("containerMode")
    if not isinstance(spec, dict):
        return found
    spec.setdefault("restartPolicy", "Never")
    kind = mode.get("type") if isinstance(mode, dict) else None
    runner = next((each for each in _items(spec.get("containers")) if each.get("name") == "runner"), None)
    if runner is not None and kind == "dind":
        _with_daemon(spec, runner)
        found.pop("containerMode")
    elif runner is not None and kind in HOOKS and isinstance(mode, dict):
        _with_hooks(spec, runner, kind, mode)
        mode.pop("kubernetesModeWorkVolumeClaim", None)
    for container in (*_items(spec.get("containers")), *_items(spec.get("initContainers"))):
        _default_requests(container)
    return found


def _with_daemon(spec: Fields, runner: Fields) -> None:
    """Container mode `dind`, on Kubernetes 1.29 or newer."""
    externals = {
        "name": "init-dind-externals",
        "image": runner.get("image"),
        # The chart has `cp` as the command, and the rest as its arguments.
        "command": ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"],
        "volumeMounts": [{"name": "dind-externals", "mountPath": "/home/runner/tmpDir"}],
    }
    dind = {
        "name": "dind",
        "image": "docker:dind",
        "args": ["dockerd", "--host=unix:///var/run/docker.sock", "--group=$(DOCKER_GROUP_GID)"],
        "env": [{"name": "DOCKER_GROUP_GID", "value": "123"}],
        "securityContext": {"privileged": True},
        "restartPolicy": "Always",
        "startupProbe": {
            "exec": {"command": ["docker", "info"]},
            "initialDelaySeconds": 0,
            "failureThreshold": 24,
            "periodSeconds": 5,
        },
        "volumeMounts": [dict(_WORK), dict(_SOCKET), dict(_EXTERNALS)],
    }
    spec["initContainers"] = [externals, dind, *_items(spec.get("initContainers"))]
    spec["containers"] = [each for each in _items(spec["containers"]) if each.get("name") != "dind"]
    added = {"DOCKER_HOST": "unix:///var/run/docker.sock", "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS": "120"}
    _add(runner, "env", [{"name": name, "value": value} for name, value in added.items()])
    _add(runner, "volumeMounts", [_WORK, _SOCKET])
    _add(spec, "volumes", [{"name": name, "emptyDir": {}} for name in ("dind-sock", "dind-externals", "work")])


def _with_hooks(spec: Fields, runner: Fields, kind: str, mode: Mapping[str, Any]) -> None:
    """Container modes `kubernetes` and `kubernetes-novolume`."""
    pod_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    env: list[Fields] = [
        {"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": HOOKS[kind]},
        {"name": "ACTIONS_RUNNER_POD_NAME", "valueFrom": pod_name},
        {"name": "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER", "value": "true"},
    ]
    if kind == "kubernetes-novolume":
        _add(runner, "env", [*env, {"name": "ACTIONS_RUNNER_IMAGE", "value": runner.get("image")}])
        return
    _add(runner, "env", env)
    _add(runner, "volumeMounts", [_WORK])
    claim = {"spec": mode.get("kubernetesModeWorkVolumeClaim") or {}}
    _add(spec, "volumes", [{"name": "work", "ephemeral": {"volumeClaimTemplate": claim}}])


def _add(owner: Fields, key: str, items: Sequence[Mapping[str, Any]]) -> None:
    """Add items to a list, but for those whose name it has."""
    there = _items(owner.get(key))
    names = {item.get("name") for item in there}
    owner[key] = [*there, *(dict(item) for item in items if item["name"] not in names)]


def _default_requests(container: Fields) -> None:
    """Requests that are omitted are the limits, as the API server sets them (pkg/apis/core/v1/defaults.go of
    Kubernetes)."""
    resources = container.get("resources")
    if isinstance(resources, dict) and isinstance(limits := resources.get("limits"), dict):
        requests = resources.get("requests")
        resources["requests"] = {**limits, **(requests if isinstance(requests, dict) else {})}


def _items(value: Any) -> list[Fields]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
