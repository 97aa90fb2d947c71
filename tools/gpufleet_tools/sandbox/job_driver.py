"""GitHub and ARC's listener, played: how many runner pods each scale set has, and what holds them there.

ARC keeps `min + assigned jobs` runners, at most `max`. Here a Kubernetes Job of that parallelism does, so that the
cluster's own job controller makes the pods, and makes them again; its pod template is the one the chart is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import nearest
from gpufleet_tools.plan.plan import Release, revealed
from gpufleet_tools.sandbox.errors import SandboxError

SCALE_SET_LABEL = "actions.github.com/scale-set-name"
"""Label that ARC gives to every runner pod, with the name of its scale set."""


def runner_count(minimum: int, maximum: int, assigned: int) -> int:
    """Runners that ARC's listener asks for (cmd/ghalistener/scaler/scaler.go at 0.14.2: min plus
    assigned jobs, at most max)."""
    return min(maximum, minimum + assigned)


def sample_mix(settings: Settings) -> dict[str, int]:
    """Jobs by label: each scale set half way between its idle runners and its most."""
    return {label: (runner.max - runner.min + 1) // 2 for label, runner in settings.runners.items()}


def job_mix(entries: Sequence[str], settings: Settings) -> dict[str, int]:
    """Jobs by label from `LABEL=N` entries; the sample mix from none.

    Raises SandboxError for an entry of another form, or a label that the stack does not have.
    """
    if not entries:
        return sample_mix(settings)
    mix = dict.fromkeys(settings.runners, 0)
    problems = []
    for entry in entries:
        label, _, count = entry.partition("=")
        if not count.isdigit():
            problems.append(f"--jobs {entry}: write LABEL=N, N a whole number of jobs")
        elif label not in mix:
            problems.append(f"--jobs {entry}: there is no label '{label}'; {nearest(label, mix)}")
        else:
            mix[label] = int(count)
    if problems:
        raise SandboxError(*problems)
    return mix


def runner_counts(releases: Sequence[Release], mix: Mapping[str, int]) -> dict[str, int]:
    """Runner pods that each scale set should have, by label."""
    return {
        release.name: runner_count(
            release.values.get("minRunners", 0), release.values["maxRunners"], mix.get(release.name, 0)
        )
        for release in releases
        if release.is_scale_set
    }


def runner_jobs(releases: Sequence[Release], mix: Mapping[str, int]) -> list[dict[str, Any]]:
    """One Job for each scale set that has runners at all."""
    counts = runner_counts(releases, mix)
    return [_job(release, counts[release.name]) for release in releases if counts.get(release.name)]


def service_accounts(releases: Sequence[Release]) -> list[dict[str, Any]]:
    """The service account of each scale set's runners, which Helm would create."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": service_account(release.name), "namespace": release.namespace},
        }
        for release in releases
        if release.is_scale_set
    ]


def service_account(label: str) -> str:
    """Name of the service account without permissions that a scale set's chart creates for its runners
    (`noPermissionServiceAccountName` in templates/_helpers.tpl of gha-runner-scale-set 0.14.2)."""
    return f"{label}-gha-rs"[:63].rstrip("-") + "-no-permission"


def _job(release: Release, count: int) -> dict[str, Any]:
    template = revealed(release.values["template"])
    metadata = template.get("metadata", {})
    labels = metadata.get("labels", {}) | {
        SCALE_SET_LABEL: release.name,
        "actions.github.com/scale-set-namespace": release.namespace,
    }
    pod = {
        "metadata": metadata | {"labels": labels},
        # As the chart does where the template does not say.
        "spec": {"restartPolicy": "Never", "serviceAccountName": service_account(release.name)} | template["spec"],
    }
    # A Job's template cannot change: another template is another Job, as it is another set of runners to ARC.
    digest = hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:6]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{release.name}-{digest}",
            "namespace": release.namespace,
            "labels": {SCALE_SET_LABEL: release.name},
        },
        "spec": {"parallelism": count, "template": pod},
    }
