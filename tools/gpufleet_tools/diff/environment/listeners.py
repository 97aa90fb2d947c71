"""Listeners that a change restarts without replacing runners: a rotated key, other limits, other metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet_tools.diff.environment.jobs import runner_releases
from gpufleet_tools.diff.evaluation import EvaluatedResource

_OF_RUNNERS = (
    "githubConfigUrl",
    "githubConfigSecret",
    "runnerGroup",
    "runnerScaleSetName",
    "proxy",
    "githubServerTLS",
    "template",
)
"""Chart values that ARC's `RunnerSetSpecHash` covers: a change replaces the runners
(apis/actions.github.com/v1alpha1/autoscalingrunnerset_types.go at 0.14.2)."""


def listener_restarts(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> list[str]:
    """Return the labels whose listener restarts while their runners stay."""
    old, new = runner_releases(before), runner_releases(after)
    return sorted(
        label
        for label in old.keys() & new.keys()
        if _is_the_same_scale_set(old[label], new[label]) and _values(old[label]) != _values(new[label])
    )


def _is_the_same_scale_set(old: EvaluatedResource, new: EvaluatedResource) -> bool:
    """Return whether the runners stay; another chart version replaces them."""
    keys = ("namespace", "version")
    if old.urn != new.urn or any(old.inputs.get(key) != new.inputs.get(key) for key in keys):
        return False
    was, now = (_values(each) for each in (old, new))
    return all(was.get(key) == now.get(key) for key in _OF_RUNNERS)


def _values(release: EvaluatedResource) -> Mapping[str, Any]:
    values = release.inputs.get("values", {})
    return values if isinstance(values, Mapping) else {}
