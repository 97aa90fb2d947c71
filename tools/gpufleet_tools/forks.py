"""Programs that run in parallel as forks of one process. The process imports the libraries that all of them use, which
takes most of an evaluation's time, but none of the programs' own code.

`gpufleet diff` runs this file as a program: `python -P forks.py FOLDER...`. It imports the libraries of the packages in
the folders, then reads a `Request` as JSON from standard input, runs its programs, and prints their exit codes as a
JSON list.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pathlib
import re
import runpy
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import NoReturn, TypedDict

OWN = ("gpufleet", "gpufleet_stacks", "gpufleet_tools")
"""Packages of which each program has its own revision."""

AWS = ("pulumi_aws", "pulumi_eks")
"""Libraries that only stacks on EKS import; the import takes a second."""

_IMPORT = re.compile(r"^from ([a-z][\w.]*) import ([\w, ]+)$|^import ([a-z][\w.]*)$", re.MULTILINE)


class Fork(TypedDict):
    """One program."""

    command: list[str]
    """The file of the program and its arguments."""
    folder: str
    """Its working directory."""
    path: list[str]
    """Folders that precede others in the module search path."""
    errors: str
    """File for its standard error."""


class Request(TypedDict):
    """Programs to run."""

    programs: list[Fork]
    """The programs."""
    aws: bool
    """Whether they use the libraries of EKS, which are imported only then."""


def libraries(folders: Iterable[str], *, aws: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield modules that components and stacks in these folders import at top level, with the imported names. Those of
    EKS are included only with `aws`."""
    for folder in folders:
        for package in OWN[:2]:
            for file in sorted(pathlib.Path(folder, package).rglob("*.py")):
                for module, names, plain in _IMPORT.findall(file.read_text(errors="replace")):
                    name = (module or plain).partition(".")[0]
                    if name not in OWN and (aws or name not in AWS):
                        yield module or plain, names.replace(" ", "").split(",") if names else []


def _import(module: str, names: Iterable[str]) -> None:
    """Import a library. A program that needs a missing library reports that itself."""
    try:
        imported = importlib.import_module(module)
        for name in names:
            getattr(imported, name, None)
    except Exception:
        return


def _become(fork: Fork) -> NoReturn:
    """Run a program in this process, and exit with its code."""
    code = 1
    try:
        errors = os.open(fork["errors"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor, stream in ((quiet, 0), (quiet, 1), (errors, 2)):
            os.dup2(descriptor, stream)
        os.chdir(fork["folder"])
        os.environ["PYTHONPATH"] = os.pathsep.join(fork["path"])
        sys.path[:0] = fork["path"]
        sys.argv = fork["command"]
        importlib.invalidate_caches()
        runpy.run_path(fork["command"][0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def run(forks: Iterable[Fork]) -> list[int]:
    """Run programs in parallel and return their exit codes. A program that a signal ended has a negative code."""
    started = []
    for fork in forks:
        process = os.fork()
        if not process:
            _become(fork)
        started.append(process)
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started]


def _main(*folders: str) -> None:
    # Postpone modules and disable garbage collection, as each program does; keep nothing else of this package.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    importlib.import_module("gpufleet_tools.short_process").begin()
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]
    del sys.path[0]
    _import_libraries(folders, aws=False)
    text = sys.stdin.read()
    if not text:
        # The command has ended without a request.
        return
    request: Request = json.loads(text)
    if request["aws"]:
        _import_libraries(folders, aws=True)
    # Most programs' own code is in temporary checkouts.
    sys.dont_write_bytecode = True
    gc.freeze()
    print(json.dumps(run(request["programs"])))


def _import_libraries(folders: Iterable[str], *, aws: bool) -> None:
    for module, names in dict.fromkeys((module, tuple(names)) for module, names in libraries(folders, aws=aws)):
        _import(module, names)


if __name__ == "__main__":
    _main(*sys.argv[1:])
