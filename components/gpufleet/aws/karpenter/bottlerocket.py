"""Bottlerocket on nodes with GPUs: its NVIDIA images include the device plugin, which user data configures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.aws.karpenter.node_pool_args import KarpenterNodePoolArgs, NodeClass
from gpufleet.aws.karpenter.node_pool_fit import ami_family
from gpufleet.nvidia.sharing import TimeSlicing
from gpufleet.problem import Problem

TIME_SLICING_SINCE = (1, 25, 0)
"""First version with settings for time-slicing (bottlerocket-os/bottlerocket#4230)."""

PLUGINS = "kubelet-device-plugins"
"""Name of the section in Bottlerocket's settings."""


def is_bottlerocket(node_class: NodeClass) -> bool:
    """Return whether nodes run Bottlerocket. Its images for instances with GPUs include the device plugin
    (QUICKSTART-EKS.md of bottlerocket-os/bottlerocket); a DaemonSet of the plugin there blocks CUDA
    (bottlerocket-os/bottlerocket#4309)."""
    return ami_family(node_class) == "Bottlerocket"


def plugin_settings(sharing: TimeSlicing) -> str:
    """Return settings of the device plugin for GPU sharing, as TOML. By default it renames shared GPUs
    (packages/nvidia-k8s-device-plugin/nvidia-k8s-device-plugin-conf of bottlerocket-os/bottlerocket-core-kit at
    v3.1.1), and Karpenter's nodes would lack the resource that their pods request."""
    section = f"settings.{PLUGINS}.nvidia"
    return (
        f"[{section}]\n"
        'device-sharing-strategy = "time-slicing"\n'
        "\n"
        f"[{section}.time-slicing]\n"
        f"replicas = {sharing.replicas}\n"
        f"rename-by-default = {json.dumps(sharing.rename_by_default)}\n"
        f"fail-requests-greater-than-one = {json.dumps(sharing.fail_requests_greater_than_one)}\n"
    )


def user_data(args: KarpenterNodePoolArgs) -> str | None:
    """Return the user data of Bottlerocket's nodes: the pool's own, and settings for GPU sharing."""
    own = args.node_class.user_data
    if not isinstance(args.sharing, TimeSlicing):
        return own
    return "\n".join([*([own.rstrip() + "\n"] if own else []), plugin_settings(args.sharing)])


def bottlerocket_problems(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield problems of a pool of Bottlerocket nodes."""
    yield from _own_settings(args)
    if args.sharing is None:
        return
    if not isinstance(args.sharing, TimeSlicing):
        message = "Bottlerocket nodes support time-slicing only; use it, or AMIs of AL2023"
        yield Problem(("sharing",), "bottlerocket-sharing", message)
        return
    for index, term in enumerate(args.node_class.ami_terms):
        version = (term.alias or "").partition("@")[2].removeprefix("v")
        numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
        if len(numbers) == 3 and numbers < TIME_SLICING_SINCE:
            since = ".".join(map(str, TIME_SLICING_SINCE))
            message = f"{term.alias} does not support time-slicing; use v{since} or later"
            yield Problem(("node_class", "ami_terms", index, "alias"), "bottlerocket-version", message)


def _own_settings(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield problems of the pool's own user data, of which Karpenter would start no node, or another kind of node."""
    own, where = args.node_class.user_data, ("node_class", "user_data")
    if own is None:
        return
    try:
        settings = tomllib.loads(own).get("settings", {})
    except tomllib.TOMLDecodeError as error:
        message = f"is not TOML, as Bottlerocket requires: {error}; correct it"
        yield Problem(where, "user-data-not-toml", message)
        return
    plugin: Mapping[str, Any] = settings.get(PLUGINS, {}).get("nvidia", {})
    if plugin and (args.sharing or plugin.get("device-sharing-strategy", "none") != "none"):
        message = f"settings.{PLUGINS}.nvidia follows from the sharing of the pool; remove it"
        yield Problem(where, "plugin-settings-twice", message)
