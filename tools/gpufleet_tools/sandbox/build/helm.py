"""Build of Helm from its pinned Go module."""

from __future__ import annotations

from pathlib import Path

from gpufleet_tools.sandbox.build.go_build import Binary, Recipe, build

HELM = Recipe(
    module=Path(__file__).parent / "modules/helm",
    binaries=(Binary("helm", "helm.sh/helm/v3/cmd/helm", 90),),
)
"""Recipe with a separate module, so that a change of it does not rebuild the control plane's programs."""


def find() -> Path:
    """Return the program; build it if it is missing. Raises SandboxError."""
    return build(HELM) / "helm"
