"""One scale set as entries of a stack file: its project, its profile and its runner."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufleet.arc.scale_set_args import DOCKER_IMAGE, RUNNER_IMAGE
from gpufleet_stacks.settings.secrets import SECRET
from gpufleet_tools.imports.arc_values import GithubSecret, ScaleSet
from gpufleet_tools.imports.value_differences import UNLIMITED

Entry = dict[str, Any]
"""An entry of a stack file, as its YAML has it."""

RUNNER_CONTAINER = {
    "name": "runner",
    "image": "ghcr.io/actions/actions-runner:latest",
    "command": ["/home/runner/run.sh"],
}
"""The container that the chart has where its values name none (values.yaml of gha-runner-scale-set at 0.14.2)."""


@dataclass(frozen=True)
class ImportedRunner:
    """A scale set in the words of a stack file. What those have no word for is left out: comparing tells."""

    label: str
    """Its `runs-on` label."""
    runner: Entry
    """Entry of `runners`, without the names of project and profile."""
    profile: Entry
    """Entry of `profiles`; empty where every default fits."""
    project: Entry
    """Entry of `projects`."""
    gpu_resource: str
    """Name that its pods ask for GPUs under."""
    secret: str | None
    """What secret its credentials need: `token` or `privateKey`."""
    values: Mapping[str, Any] = field(repr=False)
    """The chart's values that it comes from, complete: with the chart's own defaults, without what the chart adds to
    every scale set."""
    notes: tuple[str, ...] = ()
    """What had to be assumed."""


_COUNTS = ("minRunners", "maxRunners")


def imported(scale_set: ScaleSet, label: str, namespace: str, secret: GithubSecret | None = None) -> ImportedRunner:
    """A scale set as entries of a stack file. `label` and `namespace` are what Helm was told, where the values do not
    say; `secret` is the manifest of the secret that they name, where it was given too."""
    values = _complete(scale_set, label)
    spec = values["template"]["spec"]
    runner = _named(spec.get("containers"), "runner")
    dind = _named(spec.get("initContainers"), "dind") or _named(spec.get("containers"), "dind")
    docker = bool(dind) or _mapping(values.get("containerMode")).get("type") == "dind"
    resource, gpus = _gpus(runner)
    requests = _mapping(_mapping(runner.get("resources")).get("requests"))
    minimum, maximum = (_count(values.get(key)) for key in _COUNTS)
    project, needed = _project(values, namespace, label, secret)
    if needed:
        # What the chart names the secret that it makes.
        values["githubConfigSecret"] = project["credentials"]["secretName"]
    entry: Entry = {"gpus": gpus, "cpu": requests.get("cpu", 1), "memory": requests.get("memory", "1Gi")}
    entry |= {"min": minimum} if minimum else {}
    entry |= {"max": UNLIMITED if maximum is None else maximum}
    entry |= {"docker": True} if docker else {}
    assumed = [*_assumed(requests, maximum), *([] if scale_set.values.get("githubConfigSecret") else [_NO_SECRET])]
    notes = [f"{key}: it has none; {what} is assumed" for key, what in assumed]
    notes += [
        f"{key}: {values[key]!r} is text, which the chart drops without a word"
        for key in _COUNTS
        if isinstance(values.get(key), str)
    ]
    return ImportedRunner(
        label=label,
        runner=entry,
        profile=_profile(spec, runner, dind),
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
    template = dict(_mapping(values.get("template")))
    spec = dict(_mapping(template.get("spec")))
    spec.setdefault("containers", [RUNNER_CONTAINER])
    if scale_set.rendered:
        added = {"restartPolicy": "Never", "serviceAccountName": f"{label.replace('_', '-')}-gha-rs-no-permission"}
        spec = {key: value for key, value in spec.items() if added.get(key) != value}
    values["template"] = template | {"spec": spec}
    if isinstance(values.get("githubConfigUrl"), str):
        values["githubConfigUrl"] = values["githubConfigUrl"].rstrip("/")
    if values.get("runnerScaleSetName") == label:
        # The release has that name too.
        del values["runnerScaleSetName"]
    values.pop("namespaceOverride", None)
    return values


def _project(
    values: Mapping[str, Any], namespace: str, label: str, secret: GithubSecret | None
) -> tuple[Entry, str | None]:
    """Its project, and which secret that needs."""
    project: Entry = {"configUrl": values.get("githubConfigUrl"), "namespace": namespace}
    if group := values.get("runnerGroup"):
        project["runnerGroup"] = group
    given = values.get("githubConfigSecret")
    made = f"{label}-gha-rs-github-secret"
    if isinstance(given, str) and secret is None:
        return project | {"credentials": {"kind": "existingSecret", "secretName": given}}, None
    name, keys = (given, _ids(secret)) if isinstance(given, str) and secret else (made, _mapping(given))
    if "github_app_id" in keys:
        credentials = {
            "kind": "githubApp",
            "appId": str(keys["github_app_id"]),
            "installationId": str(keys.get("github_app_installation_id", "")),
            "secretName": name,
        }
        return project | {"credentials": credentials}, "privateKey"
    return project | {"credentials": {"kind": "token", "secretName": name}}, "token"


def _ids(secret: GithubSecret) -> Mapping[str, Any]:
    """As the chart's values have them; what is not legible is empty, and said to be wrong."""
    if secret.kind == "token":
        return {}
    return {"github_app_id": secret.app_id or "", "github_app_installation_id": secret.installation_id or ""}


_OWN_ENV = ("DOCKER_HOST", "POD_NAME", "NODE_NAME")
_OWN_VOLUMES = ("work", "dind-sock", "dind-externals", "docker-data", "podinfo")
"""Variables and volumes that every runner has (components/gpufleet/arc/runner_pod.py)."""


def _profile(spec: Mapping[str, Any], runner: Mapping[str, Any], dind: Mapping[str, Any]) -> Entry:
    groups = _mapping(spec.get("securityContext")).get("supplementalGroups")
    storage = _mapping(_mapping(runner.get("resources")).get("limits")).get("ephemeral-storage")
    env = {
        str(variable.get("name")): variable["value"]
        for variable in _mappings(runner.get("env"))
        if variable.get("name") not in _OWN_ENV and variable.get("value") not in (None, SECRET)
    }
    image = runner.get("image", RUNNER_IMAGE)
    profile: Entry = {"image": image} if image != RUNNER_IMAGE else {}
    policy = runner.get("imagePullPolicy", "Always" if str(image).endswith(":latest") else "IfNotPresent")
    profile |= {"imagePullPolicy": policy} if policy != "IfNotPresent" else {}
    profile |= {"docker": docker} if (docker := _docker(dind)) else {}
    profile |= {"ephemeralStorage": storage} if storage is not None else {}
    profile |= {"renderGroup": groups[0]} if isinstance(groups, list) and len(groups) == 1 else {}
    profile |= {"runtimeClass": spec["runtimeClassName"]} if spec.get("runtimeClassName") else {}
    profile |= {"nodeSelector": spec["nodeSelector"]} if spec.get("nodeSelector") else {}
    profile |= {"tolerations": spec["tolerations"]} if spec.get("tolerations") else {}
    profile |= {"env": env} if env else {}
    profile |= {"envFromSecret": sources} if (sources := _env_from_secret(runner)) else {}
    volumes = _volumes(spec, runner)
    return profile | ({"volumes": volumes} if volumes else {})


def _env_from_secret(runner: Mapping[str, Any]) -> Entry:
    """Variables whose value is a required key of a Secret."""
    found: Entry = {}
    for variable in _mappings(runner.get("env")):
        reference = _mapping(_mapping(variable.get("valueFrom")).get("secretKeyRef"))
        if reference.keys() == {"name", "key"} and variable.get("name") not in _OWN_ENV:
            found[str(variable.get("name"))] = dict(reference)
    return found


def _docker(dind: Mapping[str, Any]) -> Entry:
    """What differs from the defaults of a daemon."""
    if not dind:
        return {}
    image, docker = dind.get("image", DOCKER_IMAGE), {}
    if image != DOCKER_IMAGE:
        docker["image"] = image
    for variable in _mappings(dind.get("env")):
        group = str(variable.get("value"))
        if variable.get("name") == "DOCKER_GROUP_GID" and group.isdecimal() and group != "123":
            docker["groupId"] = int(group)
    said = [words for key in ("command", "args") if isinstance(words := dind.get(key), list)]
    root = re.search(r"--data-root[= ](/\S+)", " ".join(str(word) for words in said for word in words))
    if root and root[1] != "/home/runner/docker-data":
        docker["dataRoot"] = root[1]
    return docker


def _volumes(spec: Mapping[str, Any], runner: Mapping[str, Any]) -> Entry:
    """Volumes that the runner mounts and that are its own: one source, mounted once, whole."""
    sources = {
        str(volume.get("name")): {key: source for key, source in volume.items() if key != "name"}
        for volume in _mappings(spec.get("volumes"))
    }
    found: Entry = {}
    for mount in _mappings(runner.get("volumeMounts")):
        name = str(mount.get("name"))
        if name in _OWN_VOLUMES or len(sources.get(name, {})) != 1:
            continue
        entry: Entry = {"mountPath": mount.get("mountPath"), "source": sources[name]}
        found.setdefault(name, entry | ({"readOnly": True} if mount.get("readOnly") is True else {}))
    return found


def _gpus(runner: Mapping[str, Any]) -> tuple[str, int]:
    """Name and number of the GPUs of a runner."""
    resources = _mapping(runner.get("resources"))
    for amounts in (_mapping(resources.get("limits")), _mapping(resources.get("requests"))):
        for name, amount in amounts.items():
            if re.fullmatch(r"(amd|nvidia|gpu\.intel)\.com/.+", name) and str(amount).isdecimal():
                return name, int(amount)
    return "amd.com/gpu", 0


def _count(value: Any) -> int | None:
    """A number of runners. Text is none: the chart drops it without a word."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _named(containers: Any, name: str) -> Mapping[str, Any]:
    return next((container for container in _mappings(containers) if container.get("name") == name), {})


def _mappings(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
