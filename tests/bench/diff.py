"""`gpufleet diff` of both committed stacks, as pull requests have it: most change a few lines of a stack file. Beside
it, what importing the SDK takes by itself."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from tests.bench.fleets import ROOT
from tests.bench.preview import FLOOR, MODULES
from tests.bench.timing import in_turn, median, median_cpu, ratio

GPUFLEET = str(pathlib.Path(sys.executable).with_name("gpufleet"))

EDITS = {
    "a runner of one stack": [("Pulumi.mi300.yaml", "max: ", "max: 1")],
    "a runner of each stack": [("Pulumi.mi300.yaml", "max: ", "max: 1"), ("Pulumi.dev.yaml", "max: ", "max: 1")],
    "code": [("components/gpufleet/quantity.py", '"""', '"""Now: ')],
}
"""What a pull request changes, by what it is: a file, a text in it, and what takes its place."""


def measure(*, smallest: bool = False) -> None:
    """Prints wall time and CPU time of every kind of pull request, and the ratio to the import floor."""
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder, "repository")
        _git("clone", "--quiet", str(ROOT), str(repository))
        commands = {
            what: [GPUFLEET, "-C", str(repository), "diff", f"HEAD..{_branch(repository, what, edits)}"]
            for what, edits in EDITS.items()
        }
        floor = {"imports alone": [sys.executable, "-c", FLOOR.format(MODULES["dev"])]}
        runs = in_turn(floor | commands, rounds=1 if smallest else 5)
    table = Table(
        "what changes", "seconds", "CPU seconds", "x imports (at most 4)", title="diff of both stacks", box=None
    )
    for what, measured in runs.items():
        against = f"{ratio(measured, runs['imports alone']):.2f}"
        table.add_row(what, f"{median(measured):.2f}", f"{median_cpu(measured):.2f}", against)
    Console(highlight=False).print(table)


def _branch(repository: pathlib.Path, what: str, edits: list[tuple[str, str, str]]) -> str:
    name = what.replace(" ", "-")
    _git("-C", str(repository), "checkout", "--quiet", "-b", name, "origin/HEAD")
    for file, before, after in edits:
        path = repository / file
        path.write_text(path.read_text().replace(before, after, 1))
    someone = ["-c", "user.name=bench", "-c", "user.email=bench@example.test"]
    _git("-C", str(repository), *someone, "commit", "--quiet", "--all", "--message", what)
    _git("-C", str(repository), "checkout", "--quiet", "--detach", "origin/HEAD")
    return name


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)
