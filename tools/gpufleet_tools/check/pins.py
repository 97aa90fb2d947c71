"""Every version that the project pins, read from the file that pins it."""

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
    """Entry of pins.yaml: why versions are pinned."""

    place: str
    """File, or folder of workflows, that pins the versions."""
    names: list[str]
    """Names in that file: constants, modules, packages, actions."""
    what: str
    """Pinned component."""
    why: str
    """Reason for the pin."""
    breaks: str
    """Consequence of a change."""
    source: str
    """Source of the facts."""
    review: datetime.date | None = None
    """Date on which to look for newer versions; omitted if the file itself records the last look-up."""


class Pin(Documented):
    """One pinned version."""

    name: str
    """Name in the file that pins it."""
    version: str
    """The version: a number, an image, a digest."""
    place: str
    """File that pins the version."""
    what: str
    """Pinned component."""
    why: str
    """Reason for the pin."""
    breaks: str
    """Consequence of a change."""
    source: str
    """Source of the facts."""
    review: datetime.date
    """Date on which to look for a newer version."""


class Pins(Documented):
    """Output of `gpufleet pins --format json`."""

    pins: list[Pin]
    """Pins in the order of pins.yaml."""


class PinError(Exception):
    """A file does not have the pin that pins.yaml names. `str()` is one line."""


def reasons() -> list[Reason]:
    """Return the entries of pins.yaml; outside a checkout, only those of installed files."""
    text = pathlib.Path(__file__).with_suffix(".yaml").read_text()
    found = TypeAdapter(list[Reason]).validate_python(yaml.safe_load(text))
    return [reason for reason in found if _checkout() or reason.place.startswith(_SOURCE_ROOTS)]


def _checkout() -> bool:
    """Return whether the packages are those of a checkout."""
    return (_INSTALLED.parent / "Pulumi.yaml").is_file() and _INSTALLED.name == "tools"


def _file(place: str) -> pathlib.Path:
    """Return the path of a file. pins.yaml names it by its path in a checkout."""
    return _INSTALLED.parent / place if _checkout() else _INSTALLED / place.partition("/")[2]


def pins() -> Pins:
    """Return every pin with its version. Raises PinError."""
    return Pins(pins=[pin for reason in reasons() for pin in _pins(reason)])


def _pins(reason: Reason) -> Iterator[Pin]:
    in_file = versions(_file(reason.place))
    rest = reason.model_dump(exclude={"names", "review"}, by_alias=False)
    for name in reason.names:
        if name not in in_file:
            raise PinError(f"{reason.place}: does not pin {name}; correct pins.yaml")
        yield Pin(name=name, version=in_file[name], review=reason.review or _runner_review(), **rest)


RUNNER_REVIEW_DAYS = 30
"""Maximum age of the table of runner releases."""


def _runner_review() -> datetime.date:
    """Return the date on which to look up the runner's releases again."""
    return runner_releases.known().looked_up + datetime.timedelta(days=RUNNER_REVIEW_DAYS)


def versions(place: pathlib.Path) -> Mapping[str, str]:
    """Return the versions that a file pins, by name. Raises PinError for an unsupported type of file."""
    for pattern, read in _READERS:
        if re.search(pattern, place.as_posix()):
            return dict(read(place))
    raise PinError(f"{place}: unsupported type of file; add a reader to pins.py")


def _constants(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield the constants of a Python module; for a mapping, its `gitVersion`."""
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Assign):
            targets, expression = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            targets, expression = [statement.target], statement.value
        else:
            continue
        with contextlib.suppress(ValueError):
            value: Any = ast.literal_eval(expression)
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
    """Yield actions by digest, with the version from the comment behind it."""
    for file in sorted(folder.glob("*.y*ml")):
        for name, digest, version in re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40})(?: # (\S+))?", file.read_text()):
            yield name, f"{version} {digest[:12]}".strip()


def _runner(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield the default runner image of profiles."""
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
    """Return the number of pins whose review is due."""
    return sum(pin.review < today for pin in found.pins)


LINE = 100
"""Maximum width of the list, also in a pipe or a file: its reasons are whole sentences."""


def text(found: Pins, columns: int) -> str:
    """Return the pins as text, one block of lines for each."""
    return "\n".join(folded(_block(pin), min(columns, LINE)) for pin in found.pins)


def _block(pin: Pin) -> str:
    # Only the tag of an image: registry, name and digest would fill the line.
    version = pin.version.partition("@")[0].rpartition(":")[2]
    lines = (
        f"{pin.what}: {version}",
        f"  place: {pin.name} in {pin.place}",
        f"  reason: {pin.why}",
        f"  breaks when it changes: {pin.breaks}",
        f"  review on: {pin.review}",
    )
    return "\n".join(lines)
