"""What importing Pulumi's SDK brings along and a recorded program has no use for: loaded once something does use it.

A fifth of the time of a short command. A run under Pulumi's engine is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

POSTPONED = frozenset(
    {
        # Programs that run other programs; Python in place of a provider, with pickles; traces of the engine's calls.
        "pulumi.automation",
        "pulumi.dynamic",
        "pulumi.runtime._instrumentation",
        # What answers calls of the engine, which a recording does not make.
        "grpc.aio",
        # Manifests read from addresses, imported beside Helm's releases.
        "requests",
    }
)


class _Postponing:
    """Finds a module where it is, and has it run at the first look at one of its names."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in POSTPONED else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


def postpone() -> None:
    """From here on an import of these modules takes no time; what is imported already stays."""
    if _Postponing not in sys.meta_path:
        sys.meta_path.insert(0, _Postponing)
