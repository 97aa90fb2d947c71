"""Findings about runner pods: pod templates that bypass rules, and job containers that run as pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from gpufleet.arc.strategic_merge import MERGE_KEYS
from gpufleet.problem import Path
from gpufleet_stacks.runners import POD_FIELDS
from gpufleet_stacks.settings.models.profiles.docker import DockerSidecar
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.problems import dotted, listed
from gpufleet_stacks.settings.stack_file import StackFile
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.policy import pods

HOOK_TEMPLATE = "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE"
"""Variable that names a pod template for job containers (docs/adrs/0096-hook-extensions.md of
actions/runner-container-hooks)."""

_SETTINGS: Mapping[str, str] = {
    **{f"spec.{field}": to_camel(setting) for setting, field in POD_FIELDS.items()},
    "metadata.annotations": "podMetadata",
    "metadata.labels": "podMetadata",
    "spec.containers.runner.args": "args",
    "spec.containers.runner.command": "command",
    "spec.containers.runner.env": "env",
    "spec.containers.runner.envFrom": "envFrom",
    "spec.containers.runner.image": "image",
    "spec.containers.runner.imagePullPolicy": "imagePullPolicy",
    "spec.containers.runner.securityContext": "securityContext",
    "spec.containers.runner.volumeMounts": "volumeMounts",
    "spec.initContainers.dind.image": "docker.image",
    "spec.initContainers.dind.startupProbe": "docker.startupProbe",
    "spec.initContainers.dind.volumeMounts": "docker.volumeMounts",
    "spec.nodeSelector": "nodeSelector",
    "spec.runtimeClassName": "runtimeClass",
    "spec.tolerations": "tolerations",
    "spec.volumes": "volumes",
}
"""Settings of a profile, by the fields of a pod that they set."""

_PLACEMENT = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations", "topologySpreadConstraints")
"""Fields of a pod's spec that decide where it runs."""


def bypassed_rules(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield pod templates: they are merged after validation."""
    for name, profile in settings.profiles.items():
        if not profile.pod_template:
            continue
        paths = list(dict.fromkeys(_fields(profile.pod_template, ())))
        unseen = []
        if any(path.rpartition(".")[2] == "resources" for path in paths):
            unseen.append("capacity ignores its resources")
        if any(path.removeprefix("spec.") in _PLACEMENT for path in paths):
            unseen.append("the check for a matching node ignores it")
        settable = {path: _SETTINGS[path] for path in paths if path in _SETTINGS}
        advice = "; ".join(f"set {setting} instead of {path}" for path, setting in settable.items())
        message = f"sets {listed(paths, 'and')} in runner pods without validation" + "".join(
            f"; {each}" for each in [*unseen, *([advice] if advice else [])]
        )
        yield Finding("pod-template", "warning", ("profiles", name, "podTemplate"), message)


def _fields(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the fields of a pod that a patch sets: `spec.hostNetwork`, `spec.containers.runner.ports`."""
    key = MERGE_KEYS.get(path[-1]) if path else None
    if key and path[-1] in ("containers", "initContainers") and isinstance(value, list):
        for item in value:
            yield from (dotted((*path, str(item.get(key)), field)) for field in item if field != key)
    elif isinstance(value, Mapping) and len(path) < 2 and (not path or path[0] in ("spec", "metadata")):
        for field, item in value.items():
            yield from _fields(item, (*path, field))
    else:
        yield dotted(path)


def readable_secrets(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield labels whose jobs run in pods, with the service account of the chart."""
    for label, runner in _with_pods(settings):
        if settings.profile(runner).service_account_name is None:
            namespace = settings.projects[runner.project].namespace
            message = (
                f"jobs have a service account that can read every Secret in namespace {namespace}, including the"
                " runners' GitHub credentials, and create any pod there; restrict the label to trusted workflows, or"
                " set serviceAccountName"
            )
            yield Finding("jobs-read-secrets", "warning", ("runners", label, "docker"), message)


def idle_gpus(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield labels with GPUs whose jobs run in other pods."""
    for label, runner in _with_pods(settings):
        if runner.gpus and HOOK_TEMPLATE not in settings.profile(runner).env:
            message = (
                f"jobs run in separate pods without GPUs, and the runner's pod holds its {runner.gpus} unused; set"
                f" gpus to 0, and request GPUs in a pod template for jobs ({HOOK_TEMPLATE})"
            )
            yield Finding("job-pods-without-gpus", "warning", ("runners", label, "gpus"), message)


def _with_pods(settings: Settings) -> Iterator[tuple[str, Runner]]:
    for label, runner in settings.runners.items():
        if runner.docker and not isinstance(settings.profile(runner).docker, DockerSidecar):
            yield label, runner


def host_paths(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Volumes of the node that the stack file does not allow."""
    for name, profile in settings.profiles.items():
        parts: dict[Path, object] = {("volumes", key): volume.source for key, volume in profile.volumes.items()}
        parts |= {("workVolume",): profile.work_volume, ("podTemplate",): profile.pod_template}
        for place, part in parts.items():
            for path in pods.mounted_paths(pods.mappings(part)):
                if message := pods.host_path_message(path, settings.host_paths):
                    yield Finding("host-path", "error", ("profiles", name, *place), message)


RULES = {
    "host-path": host_paths,
    "pod-template": bypassed_rules,
    "jobs-read-secrets": readable_secrets,
    "job-pods-without-gpus": idle_gpus,
}
"""Rules, by the name of their findings."""
