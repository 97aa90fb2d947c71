"""The numbers that matter, measured on this machine: `make bench`, or `python -m tests.bench preview` for a part.

`--smallest` measures the smallest sizes once: it shows in minutes that every part still runs. Machines are noisy: what
is compared runs in turn, and medians and ratios are printed; no test depends on them.
"""

from __future__ import annotations

import sys

from tests.bench import arc, capacity, diff, hosts, preview, sandbox, sharing, workflows

PARTS = {
    "arc": arc.measure,
    "capacity": capacity.measure,
    "diff": diff.measure,
    "hosts": hosts.measure,
    "preview": preview.measure,
    "sandbox": sandbox.measure,
    "sharing": sharing.measure,
    "workflows": workflows.measure,
}


def main() -> int:
    smallest = "--smallest" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name != "--smallest"] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for name in names:
        PARTS[name](smallest=smallest)
    return 0


sys.exit(main())
