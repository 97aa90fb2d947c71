"""ARC's Helm charts: their registry and names."""

from __future__ import annotations

ARC_REGISTRY = "oci://ghcr.io/actions/actions-runner-controller-charts"

CONTROLLER_CHART = "gha-runner-scale-set-controller"
"""Chart of the controller, and name of the image with ARC's programs."""

SCALE_SET_CHART = "gha-runner-scale-set"
"""Chart of one scale set."""
