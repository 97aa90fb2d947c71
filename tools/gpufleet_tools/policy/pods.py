"""Rules about pods and charts. They take plain data and yield text. Only the standard library is imported, since the
policy pack runs in a separate environment."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gpufleet_stacks.settings.secrets import holds_secret, redacted, secret_keys
from gpufleet_tools.plan.plan import RELEASE, Hidden

Properties = Mapping[str, Any]
"""Inputs of a resource: plain data, with Hidden and UNKNOWN of the plan among the leaves."""

DECLARED_PRIVILEGED = frozenset(
    {
        ("dcgm", "gpu-validation"),
        ("gha-runner-scale-set", "dind"),
        ("k8s-device-plugin", "device-plugin"),
        ("k8s-device-plugin", "gpu-validation"),
        ("k8s-device-plugin", "node-labeller"),
        ("k8s-device-plugin", "nvidia-device-plugin"),
        ("test-runner", "gpu-validation"),
    }
)
"""Containers that may be privileged, by chart or image and name: the Docker daemon of a runner with `docker: true`,
device plugins and AMD's labeller, which read the GPUs of the host, and the validation of GPUs, which opens them."""

_DECLARED_PATHS = {"k8s-device-plugin": frozenset({"/dev", "/run/gpufleet", "/sys", "/var/lib/kubelet/device-plugins"})}
"""Folders that images may mount, by name: AMD's device plugin and labeller read GPUs there, and the validation of GPUs
keeps its result in /run/gpufleet."""

_MOVING = re.compile(
    r".*:((.+[-_.])?(latest|rolling)([-_.].+)?"
    r"|main|master|trunk|head|develop|devel|dev|nightly|edge|canary|next|snapshot|stable|lts|release|current)",
    re.IGNORECASE,
)
"""References with a mutable tag. Variants of `latest` and `rolling` are mutable too (`latest-gpu`); variants of other
words are usually fixed builds (`main-2027.1`)."""

RIGHTS_OF_THE_NODE = frozenset({"ALL", "BPF", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"})
"""Capabilities that allow an escape from a container; see capabilities(7)."""

PATHS_OF_THE_NODE = (
    "/etc/kubernetes",
    "/etc/rancher",
    "/proc",
    "/root",
    "/run/containerd",
    "/run/crio",
    "/run/docker.sock",
    "/run/k3s",
    "/run/podman",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/etcd",
    "/var/lib/kubelet/pki",
    "/var/lib/kubelet/pods",
)
"""Folders and sockets that give a pod control over its node: container engines, credentials of the node and of all its
pods. `/var/lib/kubelet/device-plugins`, which device plugins mount, is not among them."""


def privileged_pods(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield privileged containers, and pods in namespaces of their node."""
    for container in _pods(type_token, properties):
        if {"hostPID", "hostIPC"} & {key for key, value in container.items() if value is True}:
            yield "its pods can access the processes of their node; remove hostPID and hostIPC"
        if container.get("hostNetwork") is True:
            yield "its pods use the network of their node, with access to its credentials; remove hostNetwork"
        context = container.get("securityContext")
        if not isinstance(context, Mapping) or not isinstance(container.get("name"), str):
            continue
        capabilities = context.get("capabilities")
        added = capabilities.get("add") if isinstance(capabilities, Mapping) else None
        names = {str(each).upper().removeprefix("CAP_") for each in added} if isinstance(added, list | tuple) else set()
        all_rights = names & RIGHTS_OF_THE_NODE
        if (context.get("privileged") is True or all_rights) and not _declared(type_token, properties, container):
            yield (
                f"container {container['name']} is privileged, so that it controls its node and all jobs there; for"
                " Docker in runners use 'docker: true'"
            )


def _declared(type_token: str, properties: Properties, container: Properties) -> bool:
    origin = properties.get("chart", "") if type_token == RELEASE else container.get("image", "")
    if not isinstance(origin, str):
        return container["name"] in {name for _, name in DECLARED_PRIVILEGED}
    return (_image_name(origin), container["name"]) in DECLARED_PRIVILEGED


def _image_name(reference: Any) -> str:
    """Return the last part of a reference, without tag and digest."""
    return reference.rpartition("/")[2].partition(":")[0].partition("@")[0] if isinstance(reference, str) else ""


def host_paths(type_token: str, name: str, properties: Properties, allowed: Collection[str] = ()) -> Iterator[str]:
    """Yield hostPath volumes that the stack file does not allow."""
    pods = [*_pods(type_token, properties)]
    declared = _declared_paths(type_token, pods)
    for path in mounted_paths(pods):
        if path not in declared and (message := host_path_message(path, allowed)):
            yield message


def _declared_paths(type_token: str, parts: Iterable[Properties]) -> Collection[str]:
    """Return the folders that a pod's images may mount; those of all images, if its images are unknown."""
    images = {_image_name(each["image"]) for each in parts if isinstance(each.get("image"), str)}
    known = images or type_token == RELEASE
    return {path for image, paths in _DECLARED_PATHS.items() if image in images or not known for path in paths}


def mounted_paths(parts: Iterable[Any]) -> list[str]:
    """Return the paths of the hostPath volumes among parts of a pod, sorted."""
    sources = (each.get("hostPath") for each in parts if isinstance(each, Mapping))
    paths = (source.get("path") for source in sources if isinstance(source, Mapping))
    return sorted({path for path in paths if isinstance(path, str)})


def host_path_message(path: str, allowed: Collection[str]) -> str | None:
    """Return the violation of a hostPath; None if it is at or below an allowed folder."""
    if critical := takes_over(path):
        return f"{path} of the node gives pods control over the node through {critical}; mount a folder with data only"
    place = _place(path)
    if any(f"{place}/".startswith(f"{_place(folder)}/") for folder in allowed):
        return None
    return f"{path} of the node is mounted by pods, but the stack file does not allow it; add it to hostPaths"


def takes_over(path: str) -> str | None:
    """Return the critical path of a node that a hostPath is above, at or below; None if there is none."""
    place = _place(path)
    return next(
        (each for each in PATHS_OF_THE_NODE if f"{each}/".startswith(f"{place}/") or place.startswith(f"{each}/")), None
    )


def _place(path: str) -> str:
    """Return a path in its canonical form without a trailing slash; the root is an empty text."""
    place = posixpath.normpath(f"/{path}").replace("//", "/")
    return re.sub(r"^/var/run(?=/|$)", "/run", place).rstrip("/")


def mutable_images(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield images with a mutable tag, or without one."""
    images = {each["image"] for each in _pods(type_token, properties) if _is_container(each)}
    for image in sorted(image for image in images if moves(image)):
        yield f"{image} can change at any time; use a version or a digest"


def moves(image: str) -> bool:
    """Return whether an image's reference is mutable: it has no digest, and a mutable tag or none."""
    tag = image.rpartition("/")[2]
    return "@sha256:" not in image and (":" not in tag or _MOVING.fullmatch(tag) is not None)


def plain_secrets(type_token: str, name: str, properties: Properties) -> Iterator[str]:
    """Yield secrets that are not marked as secret in Pulumi: state and previews have them in plain text."""
    if type_token == "kubernetes:core/v1:Secret":
        for field in ("data", "stringData"):
            content = properties.get(field)
            yield from _in_plain_text(
                f"{field}.{key}" for key, value in _items(content) if isinstance(value, str) and value
            )
        return
    yield from _in_plain_text(_plain(properties, ()))


def _in_plain_text(paths: Iterator[str]) -> Iterator[str]:
    for path in paths:
        yield (
            f"{redacted(path)} is a secret in plain text, which the state and every preview would contain; for a"
            " variable use a Kubernetes Secret (envFromSecret), and mark other values as secret"
        )


def _plain(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths of texts that are secrets by their key or by their format. As a text, `githubConfigSecret` is a
    name; as a map, it contains the credentials (values.yaml of gha-runner-scale-set 0.14.2)."""
    if isinstance(value, str) and value:
        if holds_secret(value) or (len(path) > 1 and path[-2] == "githubConfigSecret"):
            yield ".".join(path)
    elif isinstance(value, Mapping):
        secrets = secret_keys(value)
        for key, item in _items(value):
            if key in secrets:
                yield ".".join((*path, str(value["name"]) if key == "value" and "name" in value else key))
            else:
                yield from _plain(item, (*path, key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _plain(item, path)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items() if not isinstance(item, Hidden))


def _pods(type_token: str, properties: Properties) -> Iterator[Properties]:
    """Yield every mapping in a workload or in a chart's values, which include its pods and containers."""
    if type_token.startswith("kubernetes:"):
        yield from mappings(properties.get("values") if type_token == RELEASE else properties.get("spec"))


def mappings(value: Any) -> Iterator[Properties]:
    """Yield every mapping in a value, itself first."""
    if isinstance(value, Mapping):
        yield value
        for item in value.values():
            yield from mappings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from mappings(item)


def _is_container(value: Properties) -> bool:
    return isinstance(value.get("image"), str) and isinstance(value.get("name"), str)
