"""Changes in the environment of a label's jobs: the pods of its runners and their nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpufleet_stacks.settings.secrets import redacted
from gpufleet_tools.diff.environment.pools import POOL_LABEL, node_pools, pool_environment
from gpufleet_tools.diff.evaluation import EvaluatedResource
from gpufleet_tools.plan.plan import RELEASE

_OF_DOCKER = frozenset({"DOCKER_HOST", "dind-sock", "dind-externals", "docker-data", "podinfo"})
"""Variables and volumes of runners with Docker."""

Change = tuple[str, str, str]
"""Name of a field, its value before and after."""


def runner_releases(resources: Sequence[EvaluatedResource]) -> dict[str, EvaluatedResource]:
    """Return the Helm release of each label's scale set."""
    releases = (each for each in resources if each.type == RELEASE)
    return {str(each.inputs.get("name")): each for each in releases if "maxRunners" in each.inputs.get("values", {})}


def environments(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> dict[str, list[Change]]:
    """Return the changes in the environment of each label's jobs. Labels without a change are omitted. A label may lose
    its scale set although the stack file still has it, if the program changes."""
    old, new = runner_releases(before), runner_releases(after)
    pools = node_pools(before), node_pools(after)
    changes = {}
    for label in old.keys() & new.keys():
        pods = _pod(old[label]), _pod(new[label])
        names = [pod.get("nodeSelector", {}).get(POOL_LABEL) for pod in pods]
        found = [*_of_pod(*pods), *pool_environment(pools[0].get(names[0]), pools[1].get(names[1]))]
        if found:
            changes[label] = found
    gone: list[Change] = [("scale set", "created", "none")]
    return changes | dict.fromkeys(old.keys() - new.keys(), gone)


def _pod(release: EvaluatedResource) -> Mapping[str, Any]:
    """The pod's spec, with the chart's container mode beside it."""
    values = release.inputs.get("values", {})
    template = values.get("template", {})
    spec = template.get("spec", {}) if isinstance(template, Mapping) else {}
    mode = values.get("containerMode", {})
    return {**spec, _MODE: mode} if mode else spec


def _of_pod(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    gains_or_loses_docker = bool(_container(old, "dind")) != bool(_container(new, "dind"))
    ignored = _OF_DOCKER if gains_or_loses_docker else frozenset()
    # In Kubernetes mode the chart adds the volume of the work folder.
    ignored |= {"work"} if old.get(_MODE) != new.get(_MODE) else frozenset()
    changes = [(what, text(old), text(new)) for what, text in _TEXTS.items()]
    if not gains_or_loses_docker:
        changes += [(what, text(old), text(new)) for what, text in _DOCKER_TEXTS.items()]
    found = [change for change in changes if change[1] != change[2]]
    for what, part in {**_PARTS, **({} if gains_or_loses_docker else _DOCKER_PARTS)}.items():
        if part(old) != part(new):
            found.append((what, *_shown(part(old), part(new))))
    for field in sorted((old.keys() | new.keys()) - _COMPARED_BY_PART):
        if old.get(field) != new.get(field):
            found.append((WORDS.get(field, f"{field} of the pods"), *_shown(old.get(field), new.get(field))))
    for what, items in _COLLECTIONS.items():
        before, after = ({key: item for key, item in items(pod).items() if key not in ignored} for pod in (old, new))
        found += _between(what, before, after)
    return found


def _between(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the names of items that are removed, added or changed. Their values may be private and are not shown."""
    removed, added = ([key for key in side if key not in other] for side, other in ((before, after), (after, before)))
    changed = [key for key in before if key in after and before[key] != after[key]]
    changes = [(what, ", ".join(removed) or "none", ", ".join(added) or "none")] if removed or added else []
    return changes + ([(f"value of {what}", ", ".join(changed), "another value")] if changed else [])


_LONGEST = 60
"""Maximum length of a value in a table's cell."""


def _shown(before: Any, after: Any) -> tuple[str, str]:
    """Return both sides of a value as text. Of a long value, only whether it is set, removed or changed."""
    texts = [_text(value) for value in (before, after)]
    if max(map(len, texts)) <= _LONGEST and "\n" not in "".join(texts):
        return texts[0], texts[1]
    return ("none" if before in _NOTHING else "set"), (
        "none" if after in _NOTHING else "another value" if before else "set"
    )


_NOTHING: Sequence[Any] = (None, {}, [], "")


def _text(value: Any) -> str:
    if value in _NOTHING:
        return "none"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return redacted(" ".join(value))
    return redacted(value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True))


# -- fields of a pod --------------------------------------------------------------------------------------------------


def _container(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    containers = [*pod.get("initContainers", []), *pod.get("containers", [])]
    return next((each for each in containers if each.get("name") == name), {})


def _image(pod: Mapping[str, Any], container: str) -> str:
    """Return the image with a shortened digest."""
    return re.sub(r"(@sha256:[0-9a-f]{12})[0-9a-f]+", r"\1…", str(_container(pod, container).get("image", "none")))


def _selector(pod: Mapping[str, Any]) -> str:
    labels = {key: value for key, value in pod.get("nodeSelector", {}).items() if key != POOL_LABEL}
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"


def _disk(pod: Mapping[str, Any]) -> str:
    limits = _container(pod, "runner").get("resources", {}).get("limits", {})
    return str(limits.get("ephemeral-storage", "no limit"))


def _tolerations(pod: Mapping[str, Any]) -> str:
    keys = [
        ":".join(str(each[key]) for key in ("key", "value", "effect") if key in each)
        for each in pod.get("tolerations", [])
    ]
    return ", ".join(sorted(keys)) or "none"


def _groups(pod: Mapping[str, Any]) -> str:
    groups = pod.get("securityContext", {}).get("supplementalGroups", [])
    return ", ".join(map(str, groups)) or "none"


_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "jobs run in image": lambda pod: _image(pod, "runner"),
    "image pull policy": lambda pod: str(_container(pod, "runner").get("imagePullPolicy", "none")),
    "pool": lambda pod: str(pod.get("nodeSelector", {}).get(POOL_LABEL, "none")),
    "node selector": _selector,
    "tolerations": _tolerations,
    "RuntimeClass": lambda pod: str(pod.get("runtimeClassName", "none")),
    "render group": _groups,
    "disk": _disk,
}
"""Fields of a pod that have one value."""

_DOCKER_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "Docker's daemon runs in image": lambda pod: _image(pod, "dind"),
    "Docker's daemon starts with": lambda pod: " ".join(
        str(each) for each in _container(pod, "dind").get("args", [])
    ).split("\n")[0],
    "group of Docker's socket": lambda pod: str(_variables(_container(pod, "dind")).get("DOCKER_GROUP_GID", "none")),
}


def _variables(container: Mapping[str, Any]) -> dict[str, Any]:
    return {str(each.get("name")): each.get("value", each.get("valueFrom")) for each in container.get("env", [])}


def _volumes(pod: Mapping[str, Any]) -> dict[str, Any]:
    mounts = {str(each.get("name")): each for each in _container(pod, "runner").get("volumeMounts", [])}
    return {str(each.get("name")): (each, mounts.get(str(each.get("name")))) for each in pod.get("volumes", [])}


def _mounts(pod: Mapping[str, Any]) -> list[Any]:
    """Return the runner's mounts, except the one of each volume that `_volumes` returns."""
    mounts = _container(pod, "runner").get("volumeMounts", [])
    of_volumes = {str(each.get("name")): each for each in mounts}
    return [each for each in mounts if each is not of_volumes[str(each.get("name"))]]


def _start(pod: Mapping[str, Any], part: str) -> Any:
    """Return command or arguments of the runner; None for the default ones, with or without Docker."""
    words = _container(pod, "runner").get(part)
    is_default = words == _COMMAND or (isinstance(words, list) and any(_DOCKER_SCRIPT in str(word) for word in words))
    return None if is_default else words


_COMMAND = ["/home/runner/run.sh"]
_DOCKER_SCRIPT = "/etc/podinfo/gha-render-devices"
"""Default command of a runner, and part of the script that waits for Docker (gpufleet/arc/runner_pod.py)."""


def _limit(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda pod: _container(pod, "runner").get("resources", {}).get("limits", {}).get(name)


def _extended(pod: Mapping[str, Any]) -> dict[str, Any]:
    limits = _container(pod, "runner").get("resources", {}).get("limits", {})
    return {name: amount for name, amount in limits.items() if "/" in name and not _GPU.fullmatch(name)}


_GPU = re.compile(r"(amd|nvidia)\.com/.+")
"""Resource names of GPUs, whose number is a field of the label."""

_MODE = "containerMode"

WORDS: Mapping[str, str] = {
    "affinity": "affinity",
    "automountServiceAccountToken": "token of the service account in pods",
    "containerMode": "way in which jobs run containers",
    "dnsConfig": "DNS settings",
    "dnsPolicy": "DNS policy",
    "hostAliases": "lines of /etc/hosts",
    "hostUsers": "user namespace of the pods",
    "imagePullSecrets": "Secrets for pulling images",
    "priorityClassName": "PriorityClass",
    "serviceAccountName": "service account of the runners",
    "terminationGracePeriodSeconds": "termination grace period of the runners",
    "topologySpreadConstraints": "spread of the pods",
}
"""Descriptions of a pod's fields, equal to those of their settings."""

_COMPARED_BY_PART = frozenset(
    {"containers", "initContainers", "nodeSelector", "runtimeClassName", "securityContext", "tolerations", "volumes"}
)
"""Fields of a pod's spec whose parts are compared one by one."""

_PARTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "command of the runner": lambda pod: _start(pod, "command"),
    "arguments of the runner": lambda pod: _start(pod, "args"),
    "CPU limit": _limit("cpu"),
    "memory limit": _limit("memory"),
    "extended resources": _extended,
    "security context of the runner": lambda pod: _container(pod, "runner").get("securityContext"),
    "security context of the pods": lambda pod: {
        key: value for key, value in pod.get("securityContext", {}).items() if key != "supplementalGroups"
    },
    "variables from Secrets and ConfigMaps": lambda pod: _container(pod, "runner").get("envFrom"),
    "mounts of the runner": _mounts,
}
"""Parts of a pod that are compared as a whole."""

_DOCKER_PARTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "mounts of Docker's daemon": lambda pod: _container(pod, "dind").get("volumeMounts"),
    "startup probe of Docker's daemon": lambda pod: _container(pod, "dind").get("startupProbe"),
}

_OWN = frozenset({"runner", "dind", "init-dind-externals"})
"""Containers whose parts are compared one by one."""


def _others(pod: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {str(each.get("name")): each for each in pod.get(part, []) if each.get("name") not in _OWN}


_COLLECTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "environment variables": lambda pod: _variables(_container(pod, "runner")),
    "volumes": _volumes,
    "init containers": lambda pod: _others(pod, "initContainers"),
    "containers": lambda pod: _others(pod, "containers"),
}
"""Fields of a pod that have named items."""
