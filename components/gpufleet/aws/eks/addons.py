"""EKS add-ons of a cluster: their versions, and their configuration values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet import quantity
from gpufleet.aws.eks.cluster_args import MINOR_VERSION, PINNED_ADDONS, REQUIRED_ADDONS, EksClusterArgs
from gpufleet.chart import laid_over
from gpufleet.problem import Path, Problem

_ADDON_VERSION = re.compile(r"v[0-9]+\.([0-9]+)\.[0-9]+(?:-[0-9a-z.]+)?-eksbuild\.[0-9]+")


def addon_configuration(args: EksClusterArgs, addon: str) -> dict[str, Any]:
    """Return the configuration values of an add-on: the component's, merged with the caller's."""
    return laid_over(PINNED_ADDONS.get(addon, {}), args.addon_configuration.get(addon, {}))


def addon_problems(args: EksClusterArgs) -> Iterator[Problem]:
    """Yield problems of the add-ons' versions and configuration values."""
    if missing := [addon for addon in REQUIRED_ADDONS if addon not in args.addons]:
        message = f"has no {', '.join(missing)}, which nodes or Karpenter require; add them with their versions"
        yield Problem(("addons",), "addons-missing", message)
    for addon, pinned in args.addons.items():
        yield from _version(addon, pinned, args.kubernetes_version)
    for addon, values in args.addon_configuration.items():
        where: Path = ("addon_configuration", addon)
        if addon not in args.addons:
            message = f"there is no add-on {addon}; add it to addons with its version, or remove its configuration"
            yield Problem(where, "configuration-of-no-addon", message)
        for path in _pinned(PINNED_ADDONS.get(addon, {}), values):
            message = "is already set, to keep the add-on on the system nodes; remove it"
            yield Problem((*where, *path), "configuration-of-the-component", message)
        yield from _not_json(where, values)
        yield from _resources(where, values)
        if addon == "vpc-cni":
            yield from _texts(where, values)


def _version(addon: str, pinned: str, kubernetes: object) -> Iterator[Problem]:
    minor = kubernetes if isinstance(kubernetes, str) and re.fullmatch(MINOR_VERSION, kubernetes) else None
    match = _ADDON_VERSION.fullmatch(pinned)
    where: Path = ("addons", addon)
    if not match:
        message = f"{pinned!r} is not an exact version; write for example 'v1.20.4-eksbuild.2'"
        yield Problem(where, "addon-version", message)
    elif addon == "kube-proxy" and minor and int(match[1]) > int(minor.removeprefix("1.")):
        message = f"{pinned} is newer than Kubernetes {minor}; use v{minor}"
        yield Problem(where, "kube-proxy-too-new", message)
    elif addon == "kube-proxy" and minor and int(match[1]) < int(minor.removeprefix("1.")) - 3:
        message = f"{pinned} is more than 3 minor versions older than Kubernetes {minor}; use v{minor}"
        yield Problem(where, "kube-proxy-too-old", message)


def _pinned(own: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield paths of values that the component sets itself."""
    for key, value in own.items():
        given = values.get(key)
        if key == "nodeSelector" and key in values:
            yield (key,)
        elif isinstance(value, Mapping) and isinstance(given, Mapping):
            yield from ((key, *path) for path in _pinned(value, given))


def _not_json(where: Path, value: object) -> Iterator[Problem]:
    """Yield problems of values that JSON cannot represent, such as YAML dates."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _not_json((*where, key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _not_json((*where, index), item)
    elif value is not None and not isinstance(value, str | int | float):
        message = f'{value} is not a JSON value, as add-ons require; write it as text: "{value}"'
        yield Problem(where, "configuration-not-json", message)


def _resources(where: Path, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield problems of the requests and limits of containers, wherever the values have `resources`."""
    for key, value in values.items():
        if key == "resources" and isinstance(value, Mapping):
            amounts = [
                ((*where, key, part, name), amount)
                for part in ("requests", "limits")
                if isinstance(value.get(part), Mapping)
                for name, amount in value[part].items()
            ]
            for path, amount in amounts:
                if not quantity.PATTERN.fullmatch(str(amount)):
                    message = f"{amount!r} is not a quantity; write for example 100m or 128Mi"
                    yield Problem(path, "configuration-not-quantity", message)
        elif isinstance(value, Mapping):
            yield from _resources((*where, key), value)


def _texts(where: Path, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield problems of VPC CNI values that must be text according to its schema (`configurationSchema` in
    latest/ug/workloads/eks-add-ons.adoc of awsdocs/amazon-eks-user-guide at 4d52b4d). Otherwise EKS rejects the add-on
    in the middle of an update."""
    env = values.get("env")
    variables = env if isinstance(env, Mapping) else {}
    for path, value in (
        (("enableNetworkPolicy",), values.get("enableNetworkPolicy")),
        *((("env", name), value) for name, value in variables.items()),
    ):
        if value is not None and not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            message = f'{text} is not text, which the add-on\'s schema requires; put it in quotes: "{text}"'
            yield Problem((*where, *path), "configuration-not-text", message)
