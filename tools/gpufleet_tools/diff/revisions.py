"""Two revisions of the project, each evaluated in a checkout of its own, with its own code: the gpufleet of a checkout
of this repository, and in a project that uses the package, the version that its requirements pin."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from pydantic import ValidationError

from gpufleet_stacks.settings.stack_file import stack_files, stack_name
from gpufleet_tools import forks
from gpufleet_tools.diff import pinned_version
from gpufleet_tools.diff.evaluation import Evaluation

TIMEOUT = 300
"""Seconds that one revision may take; it takes about one."""


class RevisionError(Exception):
    """A revision that is not there or cannot be evaluated; one line a fault."""


@dataclass(frozen=True)
class Revision:
    """A state of the project."""

    given: str
    """As the caller named it."""
    commit: str | None
    """Its commit; None for the working tree."""

    def __str__(self) -> str:
        if self.commit is None:
            return self.given
        short = self.commit[:8]
        return short if self.commit.startswith(self.given) else f"{self.given} ({short})"


@dataclass(frozen=True)
class Compared:
    """Two revisions and what each says of its stacks."""

    base: Revision
    """What is deployed, or will be."""
    head: Revision
    """What is proposed."""
    before: Evaluation
    """What the base says."""
    after: Evaluation
    """What the head says."""
    notes: tuple[str, ...]
    """What to know about the comparison itself."""


def compared(root: pathlib.Path, text: str, stacks: Sequence[str], day: datetime.date) -> Compared:
    """Both revisions of a range, evaluated at once.

    `BASE..HEAD` compares two commits, `BASE...HEAD` the head with where it left the base, `BASE` that commit with the
    working tree. Nothing of the checkouts stays behind.

    Raises RevisionError.
    """
    base, head = _range(root, text)
    with _terminable(), tempfile.TemporaryDirectory(prefix="gpufleet-diff-") as made:
        sides = [
            _Side(revision, _folder(root, revision, pathlib.Path(made, name)), pathlib.Path(made, f"{name}.json"))
            for name, revision in (("base", base), ("head", head))
        ]
        notes = [*_dirt(root, head), *_dependencies(*(side.folder for side in sides))]
        sides, versions = _with_their_versions(sides)
        _evaluate(*_programs(root, sides, day, stacks))
        before, after = (side.evaluation() for side in sides)
    return Compared(base, head, before, after, (*notes, *versions))


# -- git --------------------------------------------------------------------------------------------------------------


def _range(root: pathlib.Path, text: str) -> tuple[Revision, Revision]:
    _git(root, "rev-parse", "--is-inside-work-tree", otherwise=f"{root} is in no git repository: nothing to compare")
    match = re.fullmatch(r"(?P<base>.*?)(?P<dots>\.{2,3})(?P<head>.*)", text)
    if not text or (match and not match["base"]):
        raise RevisionError(f"'{text}' names no base: write BASE..HEAD, or BASE alone to compare with the working tree")
    if match is None:
        return _revision(root, text), Revision("the working tree", None)
    base, head = _revision(root, match["base"]), _revision(root, match["head"] or "HEAD")
    if match["dots"] == "...":
        otherwise = f"{base} and {head} have no commit in common; name both: BASE..HEAD"
        commit = _git(root, "merge-base", str(base.commit), str(head.commit), otherwise=otherwise)
        base = Revision(commit, commit)
    return base, head


def _revision(root: pathlib.Path, name: str) -> Revision:
    unknown = f"there is no revision '{name}'"
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        unknown += "; this clone is shallow: git fetch --unshallow (in GitHub Actions, checkout with fetch-depth: 0)"
    if name.startswith("-"):
        raise RevisionError(unknown)
    return Revision(name, _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", otherwise=unknown))


def _git(root: pathlib.Path, *arguments: str, otherwise: str | None = None) -> str:
    """What git prints. Raises RevisionError, with the text `otherwise` where git refuses."""
    try:
        ended = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not on PATH, and revisions are git's") from None
    # Git's own words where it refuses the whole repository: one that belongs to another user, as in a container.
    if ended.returncode and (otherwise is None or "safe.directory" in ended.stderr):
        raise RevisionError(f"git {arguments[0]}: {ended.stderr.strip()}")
    if ended.returncode:
        raise RevisionError(otherwise)
    return ended.stdout.strip()


def _folder(root: pathlib.Path, revision: Revision, made: pathlib.Path) -> pathlib.Path:
    """Where a revision's files are: the working tree, or a checkout that is made."""
    return root if revision.commit is None else _checkout(root, revision, made)


def _checkout(root: pathlib.Path, revision: Revision, folder: pathlib.Path) -> pathlib.Path:
    """The project's files at a revision. An archive leaves nothing in `.git` after a crash, as a worktree would."""
    folder.mkdir()
    archive = ["git", "-C", str(root), "archive", "--format=tar", str(revision.commit)]
    made = subprocess.run(archive, capture_output=True, check=False)
    if made.returncode:
        raise RevisionError(f"{revision}: {made.stderr.decode(errors='replace').strip()}")
    subprocess.run(["tar", "-x", "-C", folder], input=made.stdout, check=True)
    if not (folder / "Pulumi.yaml").is_file():
        raise RevisionError(f"{revision} has no Pulumi.yaml: the project is not there")
    return folder


_STACK_FILE = re.compile(r"Pulumi\.[^/]+\.yaml")

_IDLE = re.compile(r"(tests|examples|\.github)/.*|[^/]*\.md|LICENSE|Makefile")
"""Files of this repository that no evaluation reads."""

_IDLE_ELSEWHERE = re.compile(r"\.github/.*|[^/]*\.md|LICENSE|Makefile|\.gitignore")
"""Files of a project that uses the package which its program is taken not to read."""


def _same_code(root: pathlib.Path, sides: Sequence[_Side]) -> bool:
    """Whether nothing differs but stack files and what no evaluation reads."""
    head = sides[-1].revision
    idle = _IDLE if any(_checkout_layout(side.folder) for side in sides) else _IDLE_ELSEWHERE
    commits = [side.revision.commit for side in sides if side.revision.commit]
    names = _git(root, "diff", "--name-only", "--no-renames", "--relative", *commits, "--", ".").splitlines()
    if head.commit is None:
        names += _git(root, "ls-files", "--others", "--exclude-standard", "--", ".").splitlines()
    return all(idle.fullmatch(name) or _STACK_FILE.fullmatch(name) for name in names)


def _dirt(root: pathlib.Path, head: Revision) -> Iterator[str]:
    if _git(root, "status", "--porcelain", "--", "."):
        there = "are compared too" if head.commit is None else "are not compared: name the base alone to have them"
        yield f"the working tree has uncommitted changes, which {there}"
    if conflicts := _git(root, "diff", "--name-only", "--relative", "--diff-filter=U"):
        yield f"a merge is under way, and has left conflicts in {', '.join(conflicts.splitlines())}"


# -- evaluating -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """One of both revisions."""

    revision: Revision
    folder: pathlib.Path
    """Its files."""
    out: pathlib.Path
    """What it says, once it has."""
    version: pathlib.Path | None = None
    """Folder of the gpufleet that it pins; None where it has its own, or is evaluated with the one that runs."""

    def evaluation(self) -> Evaluation:
        try:
            return Evaluation.model_validate_json(self.out.read_bytes())
        except ValidationError:
            said = "says what it is in another form than this gpufleet reads: use the newer of both"
            raise RevisionError(f"{self.revision} {said}") from None


def _programs(
    root: pathlib.Path, sides: Sequence[_Side], day: datetime.date, stacks: Sequence[str]
) -> Iterator[_Program]:
    """Yield the programs that evaluate both sides: one for both where only stack files differ, else one for each, with
    its own code."""
    base, head = sides
    # One key for both: equal secrets have equal digests, in this comparison and in no other.
    about = [secrets.token_hex(16), day.isoformat()]
    if _same_code(root, sides):
        paths = [base.folder, base.out, head.folder, head.out]
        differing = _stacks_that_differ(base.folder, head.folder)
        asked = sorted(differing.intersection(stacks) if stacks else differing)
        program = _program(head).with_name("evaluation_of_both.py")
        if program.is_file():
            yield _Program(f"{base.revision} and {head.revision}", head, [program, *about, *paths, *asked])
            return
    for side in sides:
        yield _Program(str(side.revision), side, [_program(side), side.out, *about, *stacks])


@dataclass(frozen=True)
class _Layout:
    """Where a checkout of this repository has its code."""

    marks: tuple[str, ...]
    """Files by which it is known; an adopter's folders may have the same names."""
    program: str
    """Program that evaluates it."""
    packages: tuple[str, ...]
    """Folders of the packages that the program imports."""


_LAYOUTS = (
    _Layout(
        ("components/gpufleet/__init__.py", "stacks/gpufleet_stacks/program.py"),
        "tools/gpufleet_tools/diff/evaluation.py",
        ("components", "stacks", "tools"),
    ),
    _Layout(("stacks/stack_file.py",), "fleet/evaluation.py", ("",)),
)
"""Layouts of this repository, newest first."""


def _checkout_layout(folder: pathlib.Path) -> _Layout | None:
    """Return the layout of a checkout of this repository; None in a project that uses the package."""
    return next((layout for layout in _LAYOUTS if any((folder / mark).is_file() for mark in layout.marks)), None)


def _program(side: _Side) -> pathlib.Path:
    """Return the program that evaluates a revision: its own in this repository, else that of the version it pins, or
    the one that belongs to this command.

    Raises RevisionError for a revision of this repository that is older than `gpufleet diff`.
    """
    layout = _checkout_layout(side.folder)
    if layout is None:
        return side.version / pinned_version.EVALUATION if side.version else _HERE / pinned_version.EVALUATION
    if not (side.folder / layout.program).is_file():
        raise RevisionError(f"{side.revision} cannot be evaluated: it has no `gpufleet diff` of its own")
    return side.folder / layout.program


_HERE = pathlib.Path(__file__).resolve().parents[2]
"""Folder of the package that this command belongs to."""


def _module_path(side: _Side) -> list[str]:
    """Return the folders in which a revision's modules are looked for before all that is installed."""
    if layout := _checkout_layout(side.folder):
        # Nothing else: another checkout of this repository could be among the caller's.
        return [str(side.folder / root) for root in layout.packages]
    own = [side.version] if side.version else _packages_here()
    return [*map(str, own), *filter(None, [os.environ.get("PYTHONPATH")])]


def _packages_here() -> list[pathlib.Path]:
    """Return the folders of the packages that run this command."""
    files = [importlib.import_module(name).__file__ for name in ("gpufleet", "gpufleet_stacks", "gpufleet_tools")]
    return list(dict.fromkeys(pathlib.Path(file).resolve().parents[1] for file in files if file))


def _with_their_versions(sides: Sequence[_Side]) -> tuple[list[_Side], list[str]]:
    """Return both sides with the versions of gpufleet that they pin, where those differ, and notes about them.

    Raises RevisionError where one cannot be installed.
    """
    pins = [None if _checkout_layout(side.folder) else pinned_version.pin(side.folder) for side in sides]
    before, after = pins
    if before is None or after is None or before.identity == after.identity:
        return [*sides], []
    found = []
    for side, pin in zip(sides, (before, after), strict=True):
        try:
            here = pinned_version.is_installed_here(pin)
            found.append(side if here else replace(side, version=pinned_version.installed(pin)))
        except pinned_version.InstallError as error:
            raise RevisionError(f"{side.revision} pins another gpufleet: {error}") from None
    versions = f"gpufleet {before.version} -> {after.version}"
    return found, [f"{versions}: each revision was evaluated with the version that it pins"]


def _stacks_that_differ(*folders: pathlib.Path) -> set[str]:
    """Stacks whose files are not the same in both folders, those that only one has among them."""
    before, after = (
        {stack_name(path): path.read_bytes() if path.is_file() else None for path in stack_files(folder)}
        for folder in folders
    )
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@dataclass(frozen=True)
class _Program:
    """A program that evaluates a side, or both, with the code of one."""

    evaluated: str
    """Revisions that it evaluates."""
    side: _Side
    """Side whose code it runs."""
    command: Sequence[str | pathlib.Path]
    """Its file and arguments."""

    @property
    def errors(self) -> pathlib.Path:
        """File of its standard error."""
        return self.side.out.with_suffix(".errors")

    def fork(self) -> forks.Fork:
        """Return what `forks.py` needs to run it."""
        return {
            "command": [*map(str, self.command)],
            "folder": str(self.side.folder),
            "path": _module_path(self.side),
            "errors": str(self.errors),
        }

    def ended(self, code: int) -> None:
        """Raise RevisionError if the program has failed."""
        if code:
            raise RevisionError(f"{self.evaluated} cannot be evaluated: {self._why(code)}")

    def _why(self, code: int) -> str:
        """What went wrong, and in which line of the revision's own code."""
        text = self.errors.read_text(errors="replace").replace(f"{self.side.folder}/", "")
        lines = re.findall(r'^ *File "([^"/<][^"]*)", line (\d+)', text, re.MULTILINE)
        why = text.strip().rpartition("\n")[2] or f"it ended with code {code}"
        return why + (f" ({':'.join(lines[-1])})" if lines else "")


def _evaluate(*programs: _Program) -> None:
    """Run programs and return once all have written their evaluations. Raises RevisionError."""
    process = subprocess.Popen(
        # -P: the folder of the program is no place for modules. A group of its own: its forks end with it.
        [sys.executable, "-P", str(pathlib.Path(forks.__file__))],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    try:
        out, _ = process.communicate(json.dumps([program.fork() for program in programs]), TIMEOUT)
    except subprocess.TimeoutExpired:
        evaluated = " and ".join(program.evaluated for program in programs)
        raise RevisionError(f"{evaluated} was not evaluated within {TIMEOUT} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    codes = json.loads(out) if out else [process.returncode] * len(programs)
    for program, code in zip(programs, codes, strict=True):
        program.ended(code)


def _dependencies(before: pathlib.Path, after: pathlib.Path) -> Iterator[str]:
    """Yield a note where both ask for different packages beside gpufleet: they run with those installed here."""
    old, new = (_pins(folder / "requirements.txt") for folder in (before, after))
    names = (old.keys() | new.keys()) - {pinned_version.NAME}
    moved = sorted(name for name in names if old.get(name) != new.get(name))
    if moved:
        pins = [f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}" for name in moved]
        listed = ", ".join(pins[:5]) + (f" and {len(pins) - 5} more" if len(pins) > 5 else "")
        yield f"the dependencies differ ({listed}): both revisions were evaluated with those installed here"


def _pins(file: pathlib.Path) -> dict[str, str]:
    text = file.read_text() if file.is_file() else ""
    return dict(re.findall(r"^([A-Za-z0-9][-A-Za-z0-9._]*)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """A termination (a CI job that is cancelled) unwinds, so that the checkouts go as well."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
