"""The examined cluster, and commands for it."""

from __future__ import annotations

import pathlib
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A context of a kubeconfig."""

    kubeconfig: pathlib.Path | None = None
    """File; None for those in $KUBECONFIG, or ~/.kube/config."""
    context: str | None = None
    """Context; None for the current one of the file."""

    def kubectl(self, arguments: str) -> str:
        """Return a command of kubectl for this cluster."""
        return f"kubectl {self._options('--context')}{arguments}"

    def helm(self, arguments: str) -> str:
        """Return a command of Helm for this cluster."""
        return f"helm {self._options('--kube-context')}{arguments}"

    def _options(self, context: str) -> str:
        given = (("--kubeconfig", self.kubeconfig), (context, self.context))
        return "".join(f"{option} {shlex.quote(str(value))} " for option, value in given if value)
