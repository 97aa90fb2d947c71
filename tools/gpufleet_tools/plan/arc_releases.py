"""ARC's Helm releases in a plan."""

from __future__ import annotations

from gpufleet.arc.charts import CONTROLLER_CHART, SCALE_SET_CHART
from gpufleet_tools.plan.plan import Plan, Release


def controller(plan: Plan) -> Release | None:
    """Return the release of ARC's controller; None if the stack does not install ARC."""
    return next((each for each in plan.releases() if each.chart_name == CONTROLLER_CHART), None)


def scale_sets(plan: Plan) -> list[Release]:
    """Return the releases of runner scale sets."""
    return [each for each in plan.releases() if each.chart_name == SCALE_SET_CHART]


def all_of(plan: Plan) -> list[Release]:
    """Return the release of the controller, which the scale sets need, and those of the scale sets."""
    first = controller(plan)
    return [*([first] if first else []), *scale_sets(plan)]
