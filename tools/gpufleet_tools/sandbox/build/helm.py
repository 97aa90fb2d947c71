"""Helm, built from its pinned Go module as the control plane's programs are."""

from __future__ import annotations

from pathlib import Path

from gpufleet_tools.sandbox.build.go_build import Binary, Recipe, build

HELM = Recipe(
    module=Path(__file__).parent / "modules/helm",
    binaries=(Binary("helm", "helm.sh/helm/v3/cmd/helm", 90),),
)
"""How it is built: a module of its own, so that neither it nor the control plane is built anew for the other's sake."""


def find() -> Path:
    """The program, built when it is missing. Raises SandboxError."""
    return build(HELM) / "helm"
