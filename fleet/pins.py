"""Every version that the project fixes, read from the one place where it stands."""

from __future__ import annotations

import ast
import contextlib
import datetime
import itertools
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter
from rich.table import Table

from stacks.documented import Documented

HOME = pathlib.Path(__file__).resolve().parents[1]
"""Folder of the program: its pins are the program's, not those of a project that uses it."""


class Reason(Documented):
    """Why some versions are fixed: an entry of pins.yaml."""

    place: str
    """File, or folder of workflows, in which they stand."""
    names: list[str]
    """Their names there: constants, modules, packages, actions."""
    what: str
    """What they are of."""
    why: str
    """Why they are fixed."""
    breaks: str
    """What breaks when they move."""
    source: str
    """Where that is written."""
    review: datetime.date
    """Day on which to look for newer ones."""


class Pin(Documented):
    """One fixed version."""

    name: str
    """Its name at its place."""
    version: str
    """The version: a number, an image, a digest."""
    place: str
    """The file in which it stands."""
    what: str
    """What it is of."""
    why: str
    """Why it is fixed."""
    breaks: str
    """What breaks when it moves."""
    source: str
    """Where that is written."""
    review: datetime.date
    """Day on which to look for a newer one."""


class Pins(Documented):
    """What `gpufleet pins --format json` prints."""

    pins: list[Pin]
    """In the order of pins.yaml."""


class PinError(Exception):
    """A pin does not stand where it is said to. `str()` is one line."""


def reasons() -> list[Reason]:
    """The entries of pins.yaml."""
    text = pathlib.Path(__file__).with_suffix(".yaml").read_text()
    return TypeAdapter(list[Reason]).validate_python(yaml.safe_load(text))


def pins() -> Pins:
    """Every pin with its version. Raises PinError."""
    return Pins(pins=[pin for reason in reasons() for pin in _pins(reason)])


def _pins(reason: Reason) -> Iterator[Pin]:
    there = versions(HOME / reason.place)
    for name in reason.names:
        if name not in there:
            raise PinError(f"{reason.place}: {name} does not stand there; mend fleet/pins.yaml")
        yield Pin(name=name, version=there[name], **reason.model_dump(exclude={"names"}, by_alias=False))


def versions(place: pathlib.Path) -> Mapping[str, str]:
    """The versions that a file fixes, by name. Raises PinError for a file of no known kind."""
    for fits, read in _READERS:
        if re.search(fits, place.as_posix()):
            return dict(read(place))
    raise PinError(f"{place}: no versions are read from such a file")


def _constants(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Constants of a Python module; of a mapping, its `gitVersion`."""
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Assign):
            targets, given = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            targets, given = [statement.target], statement.value
        else:
            continue
        with contextlib.suppress(ValueError):
            value: Any = ast.literal_eval(given)
            version = value.get("gitVersion") if isinstance(value, dict) else value
            if isinstance(version, str):
                yield from ((target.id, version) for target in targets if isinstance(target, ast.Name))


def _go_modules(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^(?:require|\t)\s*(\S+) (v\S+)", file.read_text(), re.MULTILINE)


def _packages(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    project = tomllib.loads(file.read_text())["project"]
    for requirement in itertools.chain(project["dependencies"], *project.get("optional-dependencies", {}).values()):
        name, _, version = requirement.partition("==")
        yield re.sub(r"\[.*\]", "", name), version


def _engine(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    yield "requiredPulumiVersion", str(yaml.safe_load(file.read_text())["requiredPulumiVersion"])


def _actions(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Actions by digest, with the version that the comment behind it tells."""
    for file in sorted(folder.glob("*.y*ml")):
        for name, digest, version in re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40})(?: # (\S+))?", file.read_text()):
            yield name, f"{version} {digest[:12]}".strip()


_READERS = (
    (r"\.py$", _constants),
    (r"go\.mod$", _go_modules),
    (r"pyproject\.toml$", _packages),
    (r"Pulumi\.yaml$", _engine),
    (r"workflows$", _actions),
)


def due(found: Pins, today: datetime.date) -> int:
    """How many have not been looked at since the day they should have been."""
    return sum(pin.review < today for pin in found.pins)


def table(found: Pins) -> Table:
    """The pins, for people."""
    rows = Table(box=None, pad_edge=False)
    rows.add_column("what", overflow="fold")
    rows.add_column("version", no_wrap=True)
    for heading in ("fixed, because", "when it moves"):
        rows.add_column(heading)
    rows.add_column("look again", no_wrap=True)
    for pin in found.pins:
        # Of an image, the tag: registries and names would leave no room.
        version = pin.version.rpartition(":")[2]
        rows.add_row(f"{pin.what}\n{pin.name}\n{pin.place}", version, pin.why, pin.breaks, str(pin.review))
        rows.add_section()
    return rows
