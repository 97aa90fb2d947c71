"""Every version that the project fixes, read from the one place where it stands."""

from __future__ import annotations

import ast
import contextlib
import datetime
import itertools
import json
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import TypeAdapter

from gpufleet.arc import runner_releases
from gpufleet_stacks.settings.documented import Documented
from gpufleet_tools.terminal import folded

_INSTALLED = pathlib.Path(__file__).resolve().parents[2]
"""Folder of the installed packages; in a checkout, one of its source roots."""

_SOURCE_ROOTS = ("components/", "stacks/", "tools/")
"""Folders of a checkout whose packages are installed."""


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
    review: datetime.date | None = None
    """Day on which to look for newer ones; left out where the place itself says when it was looked up."""


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
    """Return the entries of pins.yaml; without a checkout, those of files that are installed."""
    text = pathlib.Path(__file__).with_suffix(".yaml").read_text()
    found = TypeAdapter(list[Reason]).validate_python(yaml.safe_load(text))
    return [reason for reason in found if _checkout() or reason.place.startswith(_SOURCE_ROOTS)]


def _checkout() -> bool:
    """Whether the packages are those of a checkout."""
    return (_INSTALLED.parent / "Pulumi.yaml").is_file() and _INSTALLED.name == "tools"


def _file(place: str) -> pathlib.Path:
    """Return the file of a place, which pins.yaml names as a checkout has it."""
    return _INSTALLED.parent / place if _checkout() else _INSTALLED / place.partition("/")[2]


def pins() -> Pins:
    """Every pin with its version. Raises PinError."""
    return Pins(pins=[pin for reason in reasons() for pin in _pins(reason)])


def _pins(reason: Reason) -> Iterator[Pin]:
    there = versions(_file(reason.place))
    rest = reason.model_dump(exclude={"names", "review"}, by_alias=False)
    for name in reason.names:
        if name not in there:
            raise PinError(f"{reason.place}: {name} is not there; correct pins.yaml")
        yield Pin(name=name, version=there[name], review=reason.review or _runner_review(), **rest)


RUNNER_REVIEW_DAYS = 30
"""Age of the table of runner releases from which on there may well be a newer one."""


def _runner_review() -> datetime.date:
    """Return the day on which the runner's releases have to be looked up again."""
    return runner_releases.known().looked_up + datetime.timedelta(days=RUNNER_REVIEW_DAYS)


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


def _runner(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The runner image that profiles have by default."""
    yield "runner", runner_releases.parsed(json.loads(file.read_text())).default.image


_READERS = (
    (r"\.py$", _constants),
    (r"runner_releases\.json$", _runner),
    (r"go\.mod$", _go_modules),
    (r"pyproject\.toml$", _packages),
    (r"Pulumi\.yaml$", _engine),
    (r"workflows$", _actions),
)


def due(found: Pins, today: datetime.date) -> int:
    """How many have not been looked at since the day they should have been."""
    return sum(pin.review < today for pin in found.pins)


LINE = 100
"""Columns of the list in a pipe or a file: reasons are sentences, and one line would hold three of them."""


def text(found: Pins, columns: int) -> str:
    """Return the pins for people: a block of lines for each."""
    return "\n".join(folded(_block(pin), min(columns, LINE)) for pin in found.pins)


def _block(pin: Pin) -> str:
    # Of an image, the tag: with its registry, name and digest it would fill the line.
    version = pin.version.partition("@")[0].rpartition(":")[2]
    lines = (
        f"{pin.what}: {version}",
        f"  place: {pin.name} in {pin.place}",
        f"  reason: {pin.why}",
        f"  breaks when it changes: {pin.breaks}",
        f"  review on: {pin.review}",
    )
    return "\n".join(lines)
