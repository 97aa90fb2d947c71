"""Steps in which one `pulumi up` upgrades ARC, for people."""

from __future__ import annotations

from gpufleet.arc.versions import numbers


def steps(installed: str, wanted: str, scale_sets: int) -> list[str]:
    """Return the steps in order. An upgrade may also lead to an older version."""
    definitions = f"ARC's CRDs are updated to {wanted}" if numbers(wanted) > numbers(installed) else "ARC's CRDs stay"
    many = f"{scale_sets} scale set{'s' * (scale_sets != 1)} get{'s' * (scale_sets == 1)}"
    return [
        "the API server rejects deletions of scale sets by ARC's controller",
        definitions,
        f"controller {wanted} replaces {installed}; listeners and runners continue",
        f"{many} chart {wanted}: listeners restart; running jobs, queued jobs and scale-set IDs stay",
    ]
