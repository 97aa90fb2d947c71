"""How scale sets of others come out of `gpufleet import`: equal, equal but for additions, or what is lost.

    python -m tests.bench.imports FOLDER

The folder has the files, each below `OWNER+NAME/`. `tests/bench/scale_sets.txt` lists those that were read last.
"""

from __future__ import annotations

import pathlib
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gpufleet.arc.controller import ControllerReference, listener_metrics
from gpufleet.arc.project import ProjectReference
from gpufleet.arc.scale_set import scale_set_values
from gpufleet.arc.scale_set_args import Docker, RunnerResources, RunnerScaleSetArgs
from gpufleet_stacks.settings.secrets import SECRET
from gpufleet_tools.imports import proof
from gpufleet_tools.imports.arc_values import ScaleSet, UnreadableValues, read

ORDER = ("equal", "equal but for additions", "reported: lost or changed", "lost in silence", "refused", "traceback")


def outcomes(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Outcome and reason of each scale set of a file; nothing for files without one."""
    try:
        scale_sets = [one for one in read(path) if isinstance(one, ScaleSet)]
    except UnreadableValues as error:
        if "has no scale set" not in str(error):
            yield "refused", str(error)
        return
    except Exception:
        yield "traceback", traceback.format_exc().splitlines()[-1]
        return
    for scale_set in scale_sets:
        try:
            yield outcome(scale_set)
        except UnreadableValues as error:
            yield "refused", str(error)
        except Exception:
            yield "traceback", traceback.format_exc().splitlines()[-1]


def outcome(scale_set: ScaleSet) -> tuple[str, str]:
    found = proof.Import()
    proof.add(found, scale_set, None, None, None)
    losses = [line for line in found.lines if any(word in line for word in proof.LOSSES)]
    # Independent of the proof: each value of the file is somewhere in what comes out of it, or in what is said.
    out = yaml.safe_dump(yaml.safe_load(found.text()), width=10_000) + "\n".join(found.lines) + own_values()
    given = (value.removesuffix("-gha-rs-controller") for value in texts(scale_set.values))
    if silent := [value for value in given if value[:40] not in out]:
        return "lost in silence", ", ".join(silent)
    if losses:
        return "reported: lost or changed", "; ".join(losses)
    kept = [line for line in found.lines if proof.KEPT in line]
    added = [line for line in found.lines if proof.ADDS in line or "is assumed" in line]
    return ("equal but for additions" if added or kept else "equal"), "; ".join(kept)


def own_values() -> str:
    """What every runner of this project has: the chart's values of one without Docker, and of two with it."""
    reference = ProjectReference(config_url="", namespace="", credentials_secret="")
    controller = ControllerReference(service_account="arc-gha-rs-controller", namespace="arc-systems")
    rendered = [
        scale_set_values(
            RunnerScaleSetArgs(
                label="",
                project=reference,
                controller=controller,
                min_runners=0,
                max_runners=1,
                resources=RunnerResources(cpu="1", memory="1Gi"),
                docker=docker,
            )
        )
        for docker in (None, Docker(), Docker(data_root=None))
    ]
    return yaml.safe_dump([rendered, listener_metrics(), SECRET], width=1000)


def texts(value: Any) -> Iterator[str]:
    """Every text and number of a value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)
    elif value not in (None, "") and not isinstance(value, bool):
        yield str(value).strip().split("\n")[0].rstrip("/")


def main(folder: pathlib.Path) -> None:
    """Print the count of each outcome, and each reason."""
    counts: Counter[str] = Counter()
    repositories: Mapping[str, Any] = {}
    for path in sorted(folder.rglob("*.y*ml")):
        for name, reason in outcomes(path):
            counts[name] += 1
            repositories = {**repositories, path.relative_to(folder).parts[0]: None}
            if reason:
                print(f"{path.relative_to(folder)}: {name}: {reason[:600]}")
    total = sum(counts.values())
    print(f"{total} scale sets of {len(repositories)} repositories")
    for name in ORDER:
        print(f"{name:25} {counts[name]:4}  {counts[name] / max(total, 1):4.0%}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
