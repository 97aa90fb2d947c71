"""Changes of ARC's version: the steps of an upgrade, and changes that would delete scale sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet.arc.charts import CONTROLLER_CHART, SCALE_SET_CHART
from gpufleet.arc.versions import INSTALLED_VERSION, minor_steps
from gpufleet_tools.diff.evaluation import EvaluatedResource
from gpufleet_tools.plan.plan import RELEASE
from gpufleet_tools.upgrade.steps import steps

Resources = Sequence[EvaluatedResource]


def declared_upgrade(resources: Resources) -> str | None:
    """Return the version from which a stack upgrades ARC (`arc.upgradeFrom`); None if it does not."""
    for each in resources:
        annotations = each.inputs.get("metadata", {}).get("annotations") or {}
        if each.type.endswith(":ValidatingAdmissionPolicy") and INSTALLED_VERSION in annotations:
            return str(annotations[INSTALLED_VERSION])
    return None


def upgrade_steps(old: Resources, new: Resources) -> list[str]:
    """Return the steps in which `pulumi up` upgrades ARC, in order, or the end of an upgrade; empty without one."""
    installed, wanted = _controller_version(old), _controller_version(new)
    if declared_upgrade(new) is None:
        ends = declared_upgrade(old) is not None and installed is not None and installed == wanted
        return [f"upgrade of ARC to {installed} ends: only its admission policy is deleted, CRDs stay"] if ends else []
    if installed is None or wanted is None or installed == wanted:
        return []
    found = steps(installed, wanted, len(_kept_scale_sets(old, new)))
    return [f"upgrade of ARC, step {number}: {step}" for number, step in enumerate(found, 1)]


def refused_arc_versions(old: Resources, new: Resources) -> Iterator[tuple[str, str]]:
    """Yield changes of ARC's minor version that are no safe upgrade: a controller deletes scale sets of other minor
    versions, and their jobs."""
    installed, wanted = _controller_version(old), _controller_version(new)
    count = len(_kept_scale_sets(old, new))
    if installed is None or wanted is None or installed == wanted or not count:
        return
    declared = declared_upgrade(new)
    if declared is None and minor_steps(installed, wanted):
        yield (
            "arc-minor-version",
            f"ARC {installed} → {wanted} with {count} scale set{'s' * (count > 1)} installed: a controller deletes"
            " scale sets of another minor version; run gpufleet upgrade arc STACK --to VERSION on the base, which also"
            " sets arc.upgradeFrom",
        )
    elif declared is not None and declared != installed:
        yield (
            "arc-upgrade",
            f"arc.upgradeFrom is {declared}, but the base has ARC {installed}; set arc.upgradeFrom to {installed}",
        )


def _controller_version(resources: Resources) -> str | None:
    return next((version(each) for each in resources if chart(each) == CONTROLLER_CHART), None)


def _kept_scale_sets(old: Resources, new: Resources) -> set[str]:
    before, after = ({each.urn for each in side if chart(each) == SCALE_SET_CHART} for side in (old, new))
    return before & after


def version(each: EvaluatedResource) -> str:
    """Return the version of a Helm release's chart; empty for other resources."""
    return str(each.inputs.get("version", ""))


def chart(each: EvaluatedResource) -> str | None:
    """Return the name of a Helm release's chart without its location; None for other resources."""
    if each.type != RELEASE:
        return None
    name = str(each.inputs.get("chart", "")).split("/")[-1]
    return name.removesuffix(".tgz").removesuffix(f"-{version(each)}")
