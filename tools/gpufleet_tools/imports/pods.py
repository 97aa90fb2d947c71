"""The pod of somebody else's runner as a profile: each part as the setting that makes it again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from gpufleet.arc.controller import listener_metrics
from gpufleet.arc.runner_pod import OWN_CONTAINERS, OWN_MOUNTS, OWN_VOLUMES, RUNNER_COMMAND, docker_runner_script
from gpufleet.arc.scale_set_args import DOCKER_IMAGE, RUNNER_IMAGE
from gpufleet_stacks.runners import POD_FIELDS
from gpufleet_stacks.settings.secrets import SECRET

Entry = dict[str, Any]
"""An entry of a stack file, as its YAML has it."""

_DATA_ROOT = "/home/runner/docker-data"
"""Folder of a daemon's images where a profile names none."""

_OWN_FIELDS = {"POD_NAME": "metadata.name", "NODE_NAME": "spec.nodeName"}
"""Variables that every runner has, with the field of its pod (components/gpufleet/arc/runner_pod.py)."""

_OWN_DAEMON_MOUNTS = (
    ("work", "/home/runner/_work"),
    ("dind-sock", "/var/run"),
    ("dind-externals", "/home/runner/externals"),
)


def profile_of(values: Mapping[str, Any], given: Mapping[str, Any], mode: Any, gpu_resource: str) -> Entry:
    """The profile of a scale set. `values` have the pod that the chart renders, and `given` the one that it was given:
    what the chart adds for its hooks is no setting."""
    hooks = mode in ("kubernetes", "kubernetes-novolume")
    template = mapping((given if hooks else values).get("template"))
    spec = mapping(template.get("spec"))
    runner = named(spec.get("containers"), "runner")
    dind = {} if hooks else named(spec.get("initContainers"), "dind")
    profile = _of_images(runner)
    profile |= _of_start(spec, runner, dind)
    docker = _hooks(given, str(mode)) if hooks else _daemon(dind)
    profile |= {"docker": docker} if docker else {}
    profile |= _of_resources(runner, gpu_resource)
    profile |= _of_pod(spec, template)
    profile |= _of_environment(runner, bool(dind))
    profile |= _of_volumes(spec, runner, hooks=hooks)
    profile |= {"securityContext": runner["securityContext"]} if runner.get("securityContext") else {}
    others = [each for each in mappings(spec.get("initContainers")) if each.get("name") not in OWN_CONTAINERS]
    profile |= {"initContainers": others} if others else {}
    return profile | _of_objects(values) | _of_listener(values)


def _of_images(runner: Mapping[str, Any]) -> Entry:
    image = runner.get("image", RUNNER_IMAGE)
    profile: Entry = {"image": image} if image != RUNNER_IMAGE else {}
    tag = str(image).rpartition("/")[2]
    moves = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
    policy = runner.get("imagePullPolicy", "Always" if moves else "IfNotPresent")
    return profile | ({"imagePullPolicy": policy} if policy != "IfNotPresent" else {})


def _of_start(spec: Mapping[str, Any], runner: Mapping[str, Any], dind: Mapping[str, Any]) -> Entry:
    """Command and arguments, where they are not those that the runner has without them."""
    command, arguments = runner.get("command", []), runner.get("args")
    groups = mapping(spec.get("securityContext")).get("supplementalGroups")
    group = groups[0] if isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], int) else None
    ours = ["/bin/sh", "-c", docker_runner_script(group)] if dind else [*RUNNER_COMMAND]
    if arguments is None and command == ours:
        return {}
    return {"command": command} | ({"args": arguments} if arguments is not None else {})


def _hooks(given: Mapping[str, Any], mode: str) -> Entry:
    """Job containers that are pods, as the chart's own modes have them."""
    section = mapping(given.get("containerMode"))
    docker: Entry = {"kind": mode}
    claim = section.get("kubernetesModeWorkVolumeClaim")
    if mode == "kubernetes":
        spec = mapping(mapping(given.get("template")).get("spec"))
        work = next((each for each in mappings(spec.get("volumes")) if each.get("name") == "work"), None)
        template = mapping(mapping(mapping(work).get("ephemeral")).get("volumeClaimTemplate"))
        docker["workVolumeClaim"] = template.get("spec", {}) if work else claim or {}
    rules = section.get("kubernetesModeAdditionalRoleRules")
    return docker | ({"additionalRoleRules": rules} if rules else {})


def _daemon(dind: Mapping[str, Any]) -> Entry:
    """Return the settings of a Docker daemon that differ from the defaults."""
    if not dind:
        return {}
    docker: Entry = {"image": dind["image"]} if dind.get("image", DOCKER_IMAGE) != DOCKER_IMAGE else {}
    group = "123"
    for variable in mappings(dind.get("env")):
        if variable.get("name") == "DOCKER_GROUP_GID":
            group = str(variable.get("value"))
    docker |= {"groupId": int(group)} if group.isdecimal() and group != "123" else {}
    said = [words for key in ("command", "args") if isinstance(words := dind.get(key), list)]
    text = " ".join(str(word) for words in said for word in words)
    found = re.search(r"--data-root[= ](/\S+)", text)
    mounts = mappings(dind.get("volumeMounts"))
    mounted = [mount.get("mountPath") for mount in mounts if mount.get("name") == "docker-data"]
    root = found[1] if found and found[1] in mounted else None
    docker |= {"dataRoot": root} if root != _DATA_ROOT else {}
    if not _is_our_script(dind, root):
        docker |= {key: dind[key] for key in ("command", "args") if isinstance(dind.get(key), list)}
    docker |= {"startupProbe": dind["startupProbe"]} if dind.get("startupProbe") else {}
    # A list: what stands in somebody's file may have no hash.
    own = [*_OWN_DAEMON_MOUNTS, ("docker-data", root)]
    more = [mount for mount in mounts if (mount.get("name"), mount.get("mountPath")) not in own]
    return docker | ({"volumeMounts": more} if more else {})


def _is_our_script(dind: Mapping[str, Any], root: str | None) -> bool:
    data_root = f" --data-root={root}" if root else ""
    script = (
        f"dockerd --host=unix:///var/run/docker.sock --group=${{DOCKER_GROUP_GID}}{data_root} &\n"
        "until docker info >/dev/null 2>&1; do sleep 5; done\n"
        "tail -f /dev/null\n"
    )
    return dind.get("command") == ["sh", "-c"] and dind.get("args") == [script]


def _of_resources(runner: Mapping[str, Any], gpu_resource: str) -> Entry:
    """Disk space and extended resources: those with equal requests and limits."""
    requests, limits = quantities(runner)
    both = {name: amount for name, amount in limits.items() if str(requests.get(name, amount)) == str(amount)}
    extended = {
        name: int(amount)
        for name, amount in both.items()
        if "/" in name and name != gpu_resource and str(amount).isdecimal()
    }
    profile: Entry = {"ephemeralStorage": both["ephemeral-storage"]} if "ephemeral-storage" in both else {}
    return profile | ({"extendedResources": extended} if extended else {})


def quantities(container: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Requests and limits of a container."""
    resources = mapping(container.get("resources"))
    limits = mapping(resources.get("limits"))
    return {**limits, **mapping(resources.get("requests"))}, limits


def _of_pod(spec: Mapping[str, Any], template: Mapping[str, Any]) -> Entry:
    profile: Entry = {}
    context = dict(mapping(spec.get("securityContext")))
    groups = context.get("supplementalGroups")
    if isinstance(groups, list) and len(groups) == 1:
        profile["renderGroup"] = groups[0]
        del context["supplementalGroups"]
    settings = {field: to_camel(setting) for setting, field in POD_FIELDS.items() if field != "securityContext"}
    settings |= {"runtimeClassName": "runtimeClass", "nodeSelector": "nodeSelector", "tolerations": "tolerations"}
    profile |= {"podSecurityContext": context} if context else {}
    for field, setting in settings.items():
        if spec.get(field) not in (None, {}, [], ""):
            profile[setting] = spec[field]
    metadata = mapping(template.get("metadata"))
    kept = {part: metadata[part] for part in ("labels", "annotations") if metadata.get(part)}
    return profile | ({"podMetadata": kept} if kept else {})


def _of_objects(values: Mapping[str, Any]) -> Entry:
    """Labels and annotations of the chart's objects."""
    kept = {part: values[part] for part in ("labels", "annotations") if values.get(part)}
    return {"scaleSetMetadata": kept} if kept else {}


def _of_environment(runner: Mapping[str, Any], docker: bool) -> Entry:
    """Variables, by where their values come from. Secrets are left out."""
    plain: Entry = {}
    secrets: Entry = {}
    others: Entry = {}
    for variable in mappings(runner.get("env")):
        name, source = str(variable.get("name")), mapping(variable.get("valueFrom"))
        reference = mapping(source.get("secretKeyRef"))
        if source == {"fieldRef": {"fieldPath": _OWN_FIELDS.get(name)}}:
            continue
        if reference.keys() == {"name", "key"} and source.keys() == {"secretKeyRef"}:
            secrets[name] = dict(reference)
        elif source:
            others[name] = dict(source)
        elif variable.get("value") != SECRET and (name, variable.get("value"), docker) != _DOCKER_HOST:
            plain[name] = variable.get("value") if variable.get("value") is not None else ""
    sections = {"env": plain, "envFromSecret": secrets, "envValueFrom": others, "envFrom": runner.get("envFrom")}
    return {name: section for name, section in sections.items() if section}


_DOCKER_HOST = ("DOCKER_HOST", "unix:///var/run/docker.sock", True)
"""The variable that a runner with a daemon has."""


def _of_volumes(spec: Mapping[str, Any], runner: Mapping[str, Any], *, hooks: bool) -> Entry:
    """Volumes of the pod's own, and where the runner mounts them."""
    sources = {
        str(volume.get("name")): {key: source for key, source in volume.items() if key != "name"} or {"emptyDir": {}}
        for volume in mappings(spec.get("volumes"))
    }
    profile: Entry = {}
    if not hooks and sources.get("work", {"emptyDir": {}}) not in ({"emptyDir": {}}, {"emptyDir": None}):
        profile["workVolume"] = sources["work"]
    volumes: Entry = {name: {"source": source} for name, source in sources.items() if name not in OWN_VOLUMES}
    further = []
    own = [*_OWN_DAEMON_MOUNTS, ("podinfo", "/etc/podinfo")]
    for mount in mappings(runner.get("volumeMounts")):
        name, place = str(mount.get("name")), mount.get("mountPath")
        simple = mount.keys() <= {"name", "mountPath", "subPath", "readOnly"}
        if simple and name in volumes and "mountPath" not in volumes[name] and _is_free(place):
            entry = {"mountPath": place}
            entry |= {"subPath": mount["subPath"]} if mount.get("subPath") else {}
            entry |= {"readOnly": True} if mount.get("readOnly") is True else {}
            volumes[name] = entry | volumes[name]
        elif not (((name, place) in own or name == "docker-data") and mount.keys() == {"name", "mountPath"}):
            further.append(mount)
    sections: Entry = {"volumes": volumes, "volumeMounts": further}
    return profile | {name: section for name, section in sections.items() if section}


def _is_free(place: Any) -> bool:
    """Whether a volume's own `mountPath` can be that place."""
    return isinstance(place, str) and place.startswith("/") and place.rstrip("/") not in OWN_MOUNTS


def _of_listener(values: Mapping[str, Any]) -> Entry:
    profile: Entry = {}
    metrics = values.get("listenerMetrics")
    if metrics and metrics != listener_metrics():
        profile["listenerMetrics"] = metrics
    template = mapping(values.get("listenerTemplate"))
    if template and template != {"spec": {"containers": []}}:
        profile["listenerTemplate"] = template
    return profile


def named(containers: Any, name: str) -> Mapping[str, Any]:
    """The container of a name; empty where there is none."""
    return next((container for container in mappings(containers) if container.get("name") == name), {})


def mappings(items: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, where it is a mapping."""
    return value if isinstance(value, dict) else {}
