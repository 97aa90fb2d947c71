"""Connections to the sandbox's API server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubernetes import client

from gpufleet_tools.api_server import ApiError, ApiServer, retried
from gpufleet_tools.kubeconfig import InvalidKubeconfig, client_configuration
from gpufleet_tools.sandbox.errors import SandboxError


def configuration(kubeconfig: Path) -> client.Configuration:
    """Return the client configuration of a kubeconfig. Raises InvalidKubeconfig."""
    settings = client_configuration(kubeconfig)
    # A proxy from the environment cannot reach a server on loopback.
    settings.proxy = None
    return settings


Listing = Callable[..., list[list[dict[str, Any]]]]
"""Function that takes (apiVersion, kind) pairs and returns all objects of each, in all namespaces."""


@contextlib.contextmanager
def listing(kubeconfig: Path) -> Iterator[Listing]:
    """Open one connection for repeated listings of objects. Raises SandboxError."""
    with connected(kubeconfig) as api:

        def one(version: str, kind: str) -> list[dict[str, Any]]:
            resource = api.resource({"apiVersion": version, "kind": kind})
            items: list[dict[str, Any]] = retried(lambda: api.call("GET", resource.path()))[1]["items"]
            return items

        yield lambda *kinds: [one(*kind) for kind in kinds]


def listed(kubeconfig: Path, *kinds: tuple[str, str]) -> list[list[dict[str, Any]]]:
    """Return all objects of each (apiVersion, kind), in all namespaces. Raises SandboxError."""
    with listing(kubeconfig) as found:
        return found(*kinds)


@contextlib.contextmanager
def connected(kubeconfig: Path) -> Iterator[ApiServer]:
    """Connect to the API server and discover its kinds. An ApiError that is not handled becomes a SandboxError."""
    try:
        settings = configuration(kubeconfig)
    except InvalidKubeconfig as error:
        raise SandboxError(f"{error}; is the sandbox up?") from error
    try:
        with ApiServer(settings) as api:
            api.discover()
            yield api
    except ApiError as error:
        raise SandboxError(f"{error.message}; is the sandbox up?") from error
