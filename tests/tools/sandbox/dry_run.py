"""What a real API server would say of objects, with nothing changed there."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path

from gpufleet_tools.api_server import ApiError, Manifest, retried
from gpufleet_tools.sandbox.control_plane.api_server import connected
from gpufleet_tools.sandbox.control_plane.objects import FIELD_MANAGER, identity
from gpufleet_tools.sandbox.errors import SandboxError

QUERY = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict", "dryRun": "All"}


def dry_run(kubeconfig: Path, objects: Sequence[Manifest]) -> None:
    """Ask the API server whether it would take `objects`, and change nothing.

    Unknown fields and wrong types are refused, as are kinds whose CRD is not there. An object in a namespace
    that is not there yet but is one of `objects` is checked as if it were in `default`. Raises SandboxError
    with one line for every object that is refused.
    """
    problems = []
    with connected(kubeconfig) as api:
        namespaces = retried(functools.partial(api.call, "GET", "/api/v1/namespaces"))[1]["items"]
        existing = {item["metadata"]["name"] for item in namespaces}
        coming = {given["metadata"]["name"] for given in objects if given["kind"] == "Namespace"} - existing
        for given in objects:
            sent = copy.deepcopy(dict(given))
            metadata = sent["metadata"]
            if metadata.get("namespace") in coming:
                metadata["namespace"] = "default"
            try:
                path = api.resource(sent).path(metadata.get("namespace", "default"), metadata["name"])
                retried(functools.partial(api.call, "PATCH", path, query=QUERY, body=sent))
            except ApiError as error:
                problems.append(f"{identity(given)}: {error.message}")
    if problems:
        raise SandboxError(*problems)
