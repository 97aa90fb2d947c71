"""One scale set as entries of a stack file: its runner. `projects.py` has its project, `pods.py` its profile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpufleet_stacks.settings.secrets import SECRET
from gpufleet_tools.imports.arc_values import GithubSecret, ScaleSet
from gpufleet_tools.imports.chart_template import HOOKS, rendered
from gpufleet_tools.imports.pods import Entry, mapping, mappings, named, profile_of, quantities
from gpufleet_tools.imports.projects import project_of
from gpufleet_tools.imports.value_differences import UNLIMITED
from gpufleet_tools.imports.without_effect import without

RUNNER_CONTAINER = {
    "name": "runner",
    "image": "ghcr.io/actions/actions-runner:latest",
    "command": ["/home/runner/run.sh"],
}
"""The container that the chart has where its values name none (values.yaml of gha-runner-scale-set at 0.14.2)."""


@dataclass(frozen=True)
class ImportedRunner:
    """A scale set as entries of a stack file. Values without a setting are omitted, which the comparison shows."""

    label: str
    """`runs-on` label."""
    runner: Entry
    """Entry of `runners`, without the names of project and profile."""
    profile: Entry
    """Entry of `profiles`; empty where every default fits."""
    project: Entry
    """Entry of `projects`."""
    gpu_resource: str
    """Name that its pods ask for GPUs under."""
    secret: str | None
    """Secret that its credentials require: `token` or `privateKey`."""
    values: Mapping[str, Any] = field(repr=False)
    """The chart's values that it comes from, with the pod that the chart renders, without what the chart adds to every
    scale set."""
    notes: tuple[str, ...] = ()
    """Assumptions."""


_COUNTS = ("minRunners", "maxRunners")


def imported(scale_set: ScaleSet, label: str, namespace: str, secret: GithubSecret | None = None) -> ImportedRunner:
    """Return a scale set as entries of a stack file. `label` and `namespace` are those of the Helm release, if the
    values do not have them; `secret` is the given manifest of the Secret that the values refer to."""
    effective, notes = without(scale_set.values, rendered=scale_set.rendered)
    given = _complete(replace(scale_set, values=effective), label)
    secret_name = f"{label}-env"
    plain = _plain_secrets(given, secret_name)
    mode = mapping(given.get("containerMode")).get("type")
    values = rendered(given)
    # What the chart adds for its hooks it adds again; a Docker daemon is a part of the pod here.
    spec = mapping(mapping((given if mode in HOOKS else values).get("template")).get("spec"))
    runner = named(spec.get("containers"), "runner")
    resource, gpus = gpu_request(runner)
    minimum, maximum = (_count(values.get(key)) for key in _COUNTS)
    project, needed = project_of(values, namespace, label, secret)
    if needed:
        # What the chart names the secret that it makes.
        values["githubConfigSecret"] = project["credentials"]["secretName"]
    requests, limits = quantities(runner)
    docker = bool(named(spec.get("initContainers"), "dind")) or mode in HOOKS
    entry: Entry = {"gpus": gpus, "cpu": requests.get("cpu", 1), "memory": requests.get("memory", "1Gi")}
    bounds = {name: limits[name] for name in ("cpu", "memory") if name in limits}
    entry |= {"limits": bounds} if bounds else {}
    entry |= {"min": minimum} if minimum else {}
    entry |= {"max": UNLIMITED if maximum is None else maximum}
    entry |= {"docker": True} if docker else {}
    entry |= {"additionalLabels": labels} if (labels := values.get("scaleSetLabels")) else {}
    assumed = [*_assumed(requests, maximum), *([] if scale_set.values.get("githubConfigSecret") else [_NO_SECRET])]
    notes += [f"{key}: it has none; {what} is assumed" for key, what in assumed]
    notes += [
        f"{name}: is a secret in plain text; revoke it, and put another into key {name} of Secret {secret_name} in"
        f" namespace {namespace} before the runners start"
        for name in plain
    ]
    notes += [
        f"{key}: {values[key]!r} is text, which the chart drops without a word"
        for key in _COUNTS
        if isinstance(values.get(key), str)
    ]
    if gpus:
        notes.append(f"gpus: {gpus} of {resource}; the profile's pool has to have GPUs of that name")
    notes += [f"{what}: not in this file, and so not compared" for what in scale_set.elsewhere]
    return ImportedRunner(
        label=label,
        runner=entry,
        profile=profile_of(values, given, mode, resource),
        project=project,
        gpu_resource=resource,
        secret=needed,
        values={key: value for key, value in values.items() if key not in _COUNTS or not isinstance(value, str)},
        notes=tuple(notes),
    )


_NO_SECRET = ("githubConfigSecret", "a token, which is to be set as the stack's secret,")


def _assumed(requests: Mapping[str, Any], maximum: int | None) -> list[tuple[str, str]]:
    found = [("cpu", "1 core")] if "cpu" not in requests else []
    found += [("memory", "1Gi")] if "memory" not in requests else []
    return found + ([("maxRunners", f"ARC's {UNLIMITED:,}")] if maximum is None else [])


def _complete(scale_set: ScaleSet, label: str) -> dict[str, Any]:
    """The values with the chart's default container, and without what the chart adds to what it renders."""
    values = dict(scale_set.values)
    template = dict(mapping(values.get("template")))
    spec = dict(mapping(template.get("spec")))
    spec.setdefault("containers", [RUNNER_CONTAINER])
    if scale_set.rendered:
        account = f"{label.replace('_', '-')}-gha-rs-no-permission"
        added = {"restartPolicy": "Never", "serviceAccountName": account}
        spec = {key: value for key, value in spec.items() if added.get(key) != value}
    values["template"] = template | {"spec": spec}
    if isinstance(values.get("githubConfigUrl"), str):
        values["githubConfigUrl"] = values["githubConfigUrl"].rstrip("/")
    if values.get("runnerScaleSetName") == label:
        # The release has that name too.
        del values["runnerScaleSetName"]
    values.pop("namespaceOverride", None)
    return values


def _plain_secrets(values: Mapping[str, Any], secret_name: str) -> list[str]:
    """Have variables of the runner whose text is a secret come from a Kubernetes Secret. Return their names."""
    spec = mapping(mapping(values.get("template")).get("spec"))
    found = []
    for variable in mappings(named(spec.get("containers"), "runner").get("env")):
        if variable.get("value") == SECRET and isinstance(variable, dict):
            name = str(variable.get("name"))
            del variable["value"]
            variable["valueFrom"] = {"secretKeyRef": {"name": secret_name, "key": name}}
            found.append(name)
    return found


def gpu_request(runner: Mapping[str, Any]) -> tuple[str, int]:
    """Name and number of the GPUs of a runner."""
    for amounts in reversed(quantities(runner)):
        for name, amount in amounts.items():
            if re.fullmatch(r"(amd|nvidia)\.com/(?!mig-).+", name) and str(amount).isdecimal():
                return name, int(amount)
    return "amd.com/gpu", 0


def _count(value: Any) -> int | None:
    """A number of runners. Text is none: the chart drops it without a word."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
