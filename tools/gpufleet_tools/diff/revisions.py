"""Evaluation of two revisions of a project, each in its own checkout. A checkout of this repository is evaluated with
its own code; a project that uses the package, with the version that its requirements pin."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NoReturn

from pydantic import ValidationError

from gpufleet_stacks.settings.stack_file import stack_files, stack_name
from gpufleet_tools import forks
from gpufleet_tools.diff import pinned_version
from gpufleet_tools.diff.evaluation import Evaluation
from gpufleet_tools.fork_server import ForkServer, packages

TIMEOUT = 300
"""Seconds after which an evaluation is ended; it takes about one second."""


class RevisionError(Exception):
    """A revision does not exist or cannot be evaluated. `str()` has one line for each fault."""


@dataclass(frozen=True)
class Revision:
    """A revision of the project."""

    given: str
    """Name that the caller used."""
    commit: str | None
    """Commit; None for the working tree."""

    def __str__(self) -> str:
        if self.commit is None:
            return self.given
        short = self.commit[:8]
        return short if self.commit.startswith(self.given) else f"{self.given} ({short})"


@dataclass(frozen=True)
class Compared:
    """Two revisions and their evaluations."""

    base: Revision
    """Base revision."""
    head: Revision
    """Proposed revision."""
    before: Evaluation
    """Evaluation of the base."""
    after: Evaluation
    """Evaluation of the head."""
    notes: tuple[str, ...]
    """Notes about the comparison itself."""


def compared(root: pathlib.Path, text: str, stacks: Sequence[str], day: datetime.date, server: ForkServer) -> Compared:
    """Evaluate both revisions of a range in parallel, as forks of the server.

    `BASE..HEAD` compares two commits, `BASE...HEAD` the head with the commit at which it branched off the base, `BASE`
    that commit with the working tree. The checkouts are temporary.

    Raises RevisionError.
    """
    base, head = _range(root, text)
    with _terminable(), tempfile.TemporaryDirectory(prefix="gpufleet-diff-") as scratch:
        with ThreadPoolExecutor() as pool:
            sides = [*pool.map(lambda *of: _side(root, pathlib.Path(scratch), *of), ("base", "head"), (base, head))]
        notes = [*_uncommitted(root, head), *_dependencies(*(side.folder for side in sides))]
        sides, versions = _with_their_versions(sides)
        _evaluate(server, *_programs(root, sides, day, stacks))
        before, after = (side.evaluation() for side in sides)
    return Compared(base, head, before, after, (*notes, *versions))


# -- git --------------------------------------------------------------------------------------------------------------


def _range(root: pathlib.Path, text: str) -> tuple[Revision, Revision]:
    _git(root, "rev-parse", "--is-inside-work-tree", otherwise=f"{root} is not in a git repository")
    match = re.fullmatch(r"(?P<base>.*?)(?P<dots>\.{2,3})(?P<head>.*)", text)
    if not text or (match and not match["base"]):
        raise RevisionError(f"'{text}' has no base; use BASE..HEAD, or BASE alone to compare with the working tree")
    if match is None:
        return _revision(root, text), Revision("the working tree", None)
    base, head = _revision(root, match["base"]), _revision(root, match["head"] or "HEAD")
    if match["dots"] == "...":
        otherwise = f"{base} and {head} have no commit in common; use BASE..HEAD"
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
    """Run git and return its output. Raises RevisionError with the text `otherwise` if git fails."""
    try:
        ended = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not on PATH; install it to compare revisions") from None
    # Git's own message if it rejects the whole repository because another user owns it, as in a container.
    if ended.returncode and (otherwise is None or "safe.directory" in ended.stderr):
        raise RevisionError(f"git {arguments[0]}: {ended.stderr.strip()}")
    if ended.returncode:
        raise RevisionError(otherwise)
    return ended.stdout.strip()


def _side(root: pathlib.Path, scratch: pathlib.Path, name: str, revision: Revision) -> _Side:
    """Return a side with the folder of its files: the working tree, or a new checkout."""
    folder = root if revision.commit is None else _checkout(root, revision, scratch / name)
    return _Side(revision, folder, scratch / f"{name}.json")


def _checkout(root: pathlib.Path, revision: Revision, folder: pathlib.Path) -> pathlib.Path:
    """Write the project's files at a revision. Unlike a worktree, an archive leaves nothing in `.git` after a crash."""
    folder.mkdir()
    marks = [mark for layout in _LAYOUTS for mark in layout.marks]
    own = _git(root, "ls-tree", "--name-only", str(revision.commit), "--", *marks)
    used = [".", *(f":(exclude){name}" for name in _UNUSED_FOLDERS)] if own else []
    command = ["git", "-C", str(root), "archive", "--format=tar", str(revision.commit), "--", *used]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        raise RevisionError(f"{revision}: {archive.stderr.decode(errors='replace').strip()}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    if not (folder / "Pulumi.yaml").is_file():
        raise RevisionError(f"{revision} has no Pulumi.yaml in this folder")
    return folder


_STACK_FILE = re.compile(r"Pulumi\.[^/]+\.yaml")

_UNUSED_FOLDERS = ("tests", "docs", "examples", "policy", ".github", ".ci")
"""Folders of this repository that no evaluation reads."""

_UNUSED = re.compile(rf"({'|'.join(map(re.escape, _UNUSED_FOLDERS))})/.*|[^/]*\.md|LICENSE|Makefile")
"""Files of this repository that no evaluation reads."""

_UNUSED_ELSEWHERE = re.compile(r"\.github/.*|[^/]*\.md|LICENSE|Makefile|\.gitignore")
"""Files of a project that uses the package. Its program is assumed not to read them."""


def _same_code(root: pathlib.Path, sides: Sequence[_Side]) -> bool:
    """Return whether only stack files and files that no evaluation reads differ."""
    head = sides[-1].revision
    unused = _UNUSED if any(_checkout_layout(side.folder) for side in sides) else _UNUSED_ELSEWHERE
    commits = [side.revision.commit for side in sides if side.revision.commit]
    names = _git(root, "diff", "--name-only", "--no-renames", "--relative", *commits, "--", ".").splitlines()
    if head.commit is None:
        names += _git(root, "ls-files", "--others", "--exclude-standard", "--", ".").splitlines()
    return all(unused.fullmatch(name) or _STACK_FILE.fullmatch(name) for name in names)


def _uncommitted(root: pathlib.Path, head: Revision) -> Iterator[str]:
    """Yield notes about uncommitted changes and merge conflicts."""
    if _git(root, "status", "--porcelain", "--", "."):
        included = "are included" if head.commit is None else "are not included; name only the base to include them"
        yield f"the working tree has uncommitted changes, which {included}"
    if conflicts := _git(root, "diff", "--name-only", "--relative", "--diff-filter=U"):
        yield f"a merge is in progress, with conflicts in {', '.join(conflicts.splitlines())}"


# -- evaluation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """One of both revisions."""

    revision: Revision
    folder: pathlib.Path
    """Folder of its files."""
    out: pathlib.Path
    """File of its evaluation."""
    version: pathlib.Path | None = None
    """Folder of the gpufleet that it pins; None if it has its own, or the running one evaluates it."""

    def evaluation(self) -> Evaluation:
        try:
            return Evaluation.model_validate_json(self.out.read_bytes())
        except FileNotFoundError:
            raise RevisionError(f"{self.revision} cannot be evaluated: its program ended the process") from None
        except ValidationError:
            message = f"the evaluation of {self.revision} has a format that this gpufleet cannot read"
            raise RevisionError(f"{message}; use the newer gpufleet of both") from None


def _programs(
    root: pathlib.Path, sides: Sequence[_Side], day: datetime.date, stacks: Sequence[str]
) -> Iterator[_Program]:
    """Yield the programs that evaluate both sides: one for both if only stack files differ, else one for each, with its
    own code."""
    base, head = sides
    # One key for both sides: equal secrets have equal digests in this comparison, and in no other.
    key_and_day = [secrets.token_hex(16), day.isoformat()]
    if _same_code(root, sides):
        paths = [base.folder, base.out, head.folder, head.out]
        differing = _stacks_that_differ(base.folder, head.folder)
        selected = sorted(differing.intersection(stacks) if stacks else differing)
        program = _program(head).with_name("evaluation_of_both.py")
        if program.is_file():
            yield _Program(
                evaluated=f"{base.revision} and {head.revision}",
                side=head,
                command=[program, *key_and_day, *paths, *selected],
                uses_aws=any(_uses_aws(side.folder, selected) for side in sides),
            )
            return
    for side in sides:
        yield _Program(
            evaluated=str(side.revision),
            side=side,
            command=[_program(side), side.out, *key_and_day, *stacks],
            uses_aws=_uses_aws(side.folder, stacks or None),
        )


def _uses_aws(folder: pathlib.Path, stacks: Sequence[str] | None) -> bool:
    """Return whether one of these stacks seems to be on EKS; None means all stacks. Only the speed depends on it."""
    files = [path for path in stack_files(folder) if stacks is None or stack_name(path) in stacks]
    return any(re.search(rb"\bkind: *['\"]?eks\b", path.read_bytes()) for path in files if path.is_file())


@dataclass(frozen=True)
class _Layout:
    """Folders of the code in a checkout of this repository."""

    marks: tuple[str, ...]
    """Files that identify the layout; an adopter's folders may have the same names."""
    program: str
    """Program that evaluates the checkout."""
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
    """Return the program that evaluates a revision: its own in a checkout of this repository, else that of the version
    that it pins, or that of this command.

    Raises RevisionError for a revision of this repository that is older than `gpufleet diff`.
    """
    layout = _checkout_layout(side.folder)
    if layout is None:
        return side.version / pinned_version.EVALUATION if side.version else _HERE / pinned_version.EVALUATION
    if not (side.folder / layout.program).is_file():
        raise RevisionError(f"{side.revision} cannot be evaluated: it is older than `gpufleet diff`")
    return side.folder / layout.program


_HERE = pathlib.Path(__file__).resolve().parents[2]
"""Folder of this command's packages."""


def _module_path(side: _Side) -> list[str]:
    """Return the folders that precede installed packages in the module search path of a revision."""
    if layout := _checkout_layout(side.folder):
        # No other folders: the caller's PYTHONPATH could have another checkout of this repository.
        return [str(side.folder / root) for root in layout.packages]
    own = [side.version] if side.version else packages()
    return [*map(str, own), *filter(None, [os.environ.get("PYTHONPATH")])]


def _with_their_versions(sides: Sequence[_Side]) -> tuple[list[_Side], list[str]]:
    """Return both sides with the versions of gpufleet that they pin, if those differ, and notes about them.

    Raises RevisionError if one cannot be installed.
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
    """Return the stacks whose files differ between both folders, or that only one has."""
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
    """File and arguments of the program."""
    uses_aws: bool
    """Whether it evaluates stacks on EKS."""

    @property
    def errors(self) -> pathlib.Path:
        """File of its standard error."""
        return self.side.out.with_suffix(".errors")

    def fork(self) -> forks.Fork:
        """Return the program as input of `forks.py`."""
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
        """Return the error, with the line of the revision's own code."""
        text = self.errors.read_text(errors="replace").replace(f"{self.side.folder}/", "")
        lines = re.findall(r'^ *File "([^"/<][^"]*)", line (\d+)', text, re.MULTILINE)
        why = text.strip().rpartition("\n")[2] or f"it ended with code {code}"
        return why + (f" ({':'.join(lines[-1])})" if lines else "")


def _evaluate(server: ForkServer, *programs: _Program) -> None:
    """Run programs and return once all have written their evaluations. Raises RevisionError."""
    request: forks.Request = {
        "programs": [program.fork() for program in programs],
        "aws": any(program.uses_aws for program in programs),
    }
    try:
        codes = server.run(request, TIMEOUT)
    except TimeoutError:
        evaluated = " and ".join(program.evaluated for program in programs)
        raise RevisionError(f"{evaluated} was not evaluated within {TIMEOUT} s") from None
    for program, code in zip(programs, codes, strict=True):
        program.ended(code)


def _dependencies(before: pathlib.Path, after: pathlib.Path) -> Iterator[str]:
    """Yield a note if the revisions require different packages beside gpufleet: both use the installed ones."""
    old, new = (_pins(folder / "requirements.txt") for folder in (before, after))
    names = (old.keys() | new.keys()) - {pinned_version.NAME}
    moved = sorted(name for name in names if old.get(name) != new.get(name))
    if moved:
        pins = [f"{name} {old.get(name, 'none')} -> {new.get(name, 'none')}" for name in moved]
        listed = ", ".join(pins[:5]) + (f" and {len(pins) - 5} more" if len(pins) > 5 else "")
        yield f"the dependencies differ ({listed}): both revisions were evaluated with the installed ones"


def _pins(file: pathlib.Path) -> dict[str, str]:
    text = file.read_text() if file.is_file() else ""
    return dict(re.findall(r"^([A-Za-z0-9][-A-Za-z0-9._]*)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM, as of a cancelled CI job, into an exception, so that the checkouts are removed."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
