"""Idle pods of the sandbox, which only take part in scheduling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def idle_pods(name: str, namespace: str, template: Mapping[str, Any], replicas: int = 1) -> dict[str, Any]:
    """Return a Job that keeps this number of pods running. A Deployment would be listed as the stack's own."""
    spec = {"automountServiceAccountToken": False, **template["spec"], "restartPolicy": "Never"}
    pod = {**template, "spec": spec}
    # A Job's template is immutable.
    digest = hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:6]
    several = {"parallelism": replicas, "completions": replicas} if replicas != 1 else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{name}-{digest}", "namespace": namespace},
        "spec": {**several, "template": pod},
    }
