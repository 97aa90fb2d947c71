"""States of a node under maintenance."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpufleet_tools.maintenance.cluster import State

QUIET = State(
    uid="1",
    boot_id="a",
    is_ready=True,
    is_cordoned=False,
    owners=(),
    mark=None,
    allocatable={"amd.com/gpu": "8"},
    runners=(),
    evictable=(),
    lasting=(),
    away=(),
    unready=(),
    control_plane=(),
)


def state(**changes: Any) -> State:
    """The state of a node that is ready and empty, but for some of it."""
    return dataclasses.replace(QUIET, **changes)
