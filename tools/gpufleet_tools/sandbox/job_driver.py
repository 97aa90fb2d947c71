"""Simulation of GitHub and ARC's listener: Kubernetes Jobs that create the runner pods of each scale set.

ARC keeps `min + assigned jobs` runners, at most `max`. The simulation has a Job with that parallelism for each scale
set, so that the cluster's job controller creates the pods and replaces them. The Job's pod template is that of the
chart's values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import nearest
from gpufleet_tools.plan.plan import Release, revealed
from gpufleet_tools.sandbox.errors import SandboxError

SCALE_SET_LABEL = "actions.github.com/scale-set-name"
"""Label of every runner pod with the name of its scale set, set by ARC."""


MAX_JOBS = 10_000
"""Maximum number of jobs of one label."""


def runner_count(minimum: int, maximum: int, assigned: int) -> int:
    """Return the number of runners that ARC's listener requests: min plus assigned jobs, at most max
    (cmd/ghalistener/scaler/scaler.go at 0.14.2)."""
    return min(maximum, minimum + assigned)


def sample_mix(settings: Settings) -> dict[str, int]:
    """Return jobs by label, so that each scale set has about half of the runners between its min and its max."""
    return {label: (runner.max - runner.min + 1) // 2 for label, runner in settings.runners.items()}


def job_mix(entries: Sequence[str], settings: Settings) -> dict[str, int]:
    """Return jobs by label from `LABEL=N` entries; the sample mix if there are none.

    Raises SandboxError for an invalid entry or an unknown label.
    """
    if not entries:
        return sample_mix(settings)
    return dict.fromkeys(settings.runners, 0) | job_counts(entries, settings.runners, option="--jobs ")


def job_counts(
    entries: Sequence[str], labels: Collection[str], *, option: str = "", default: int | None = None
) -> dict[str, int]:
    """Return numbers by label from `LABEL=N` entries, and also from `LABEL` entries if there is a default number.

    Raises SandboxError with a line for each invalid entry and each unknown label. `option` precedes the entry there.
    """
    counts: dict[str, int] = {}
    problems = []
    for entry in entries:
        label, separator, number = entry.partition("=")
        if not (number.isdecimal() or (default is not None and not separator)):
            problems.append(f"{option}{entry}: is not LABEL=N, where N is a number of jobs")
        elif label not in labels:
            problems.append(f"{option}{entry}: there is no label '{label}'; {nearest(label, labels)}")
        elif label in counts:
            problems.append(f"{option}{entry}: label '{label}' is given twice; give one number")
        elif default is not None and not separator:
            counts[label] = default
        elif int(number) > MAX_JOBS:
            problems.append(f"{option}{entry}: is too many; at most {MAX_JOBS} jobs of a label")
        else:
            counts[label] = int(number)
    if problems:
        raise SandboxError(*problems)
    return counts


def runner_counts(scale_sets: Sequence[Release], mix: Mapping[str, int]) -> dict[str, int]:
    """Return the number of runner pods of each scale set, by label."""
    return {
        release.name: runner_count(
            release.values.get("minRunners", 0), release.values["maxRunners"], mix.get(release.name, 0)
        )
        for release in scale_sets
    }


def runner_jobs(scale_sets: Sequence[Release], mix: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a Job for each scale set that has runners."""
    counts = runner_counts(scale_sets, mix)
    return [_job(release, counts[release.name]) for release in scale_sets if counts.get(release.name)]


def service_accounts(scale_sets: Sequence[Release]) -> list[dict[str, Any]]:
    """Return the service accounts that Helm would create for the runners of each scale set."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": service_account(release.name), "namespace": release.namespace},
        }
        for release in scale_sets
    ]


def service_account(label: str) -> str:
    """Return the name of the service account without permissions that a scale set's chart creates for its runners
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
        # Defaults of the chart.
        "spec": {"restartPolicy": "Never", "serviceAccountName": service_account(release.name)} | template["spec"],
    }
    # A Job's template is immutable: a changed template gets a new Job, as ARC creates a new set of runners.
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
