"""Start and end of a short process: the command, and the evaluations that `gpufleet diff` starts.

A preview may take at most 1.5 times as long as importing the SDK's modules (tests/bench/preview.py). In such import
times, postponed modules save 0.19, no garbage collection 0.14, and an exit without finalizing 0.19 (CPU time of
`gpufleet preview mi300`, medians of 20 alternating runs; 1.41 with all three).
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import NoReturn

POSTPONED = frozenset(
    {
        # Programs that run other programs; dynamic providers, with pickles; traces of the engine's calls.
        "pulumi.automation",
        "pulumi.dynamic",
        "pulumi.runtime._instrumentation",
        # Servers for the engine's calls, which a recording does not make.
        "grpc.aio",
        # Manifests read from URLs; imported beside Helm's releases.
        "requests",
    }
)
"""Modules that the SDK imports and that a recorded program does not use."""


class _Postponing:
    """Import finder that runs a postponed module at the first access to one of its names (importlib's LazyLoader)."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in POSTPONED else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


def begin() -> None:
    """Postpone the SDK's unused modules, and disable garbage collection: a short process makes many objects that live
    to its end. Call it before `import pulumi`."""
    gc.disable()
    if _Postponing not in sys.meta_path:
        sys.meta_path.insert(0, _Postponing)


def end(code: int) -> NoReturn:
    """Exit without finalizing modules and objects one by one."""
    for stream in (sys.stdout, sys.stderr):
        # The reader of the output may have closed the pipe.
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)
