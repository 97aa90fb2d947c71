"""Processes and locks: children that end with this process, and the identification of processes that outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

# From linux/prctl.h: sets the signal that this process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
# Loaded here: between fork and exec the child must not take locks, as dlopen does.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def _end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel end the child with its parent. Runs in the child between fork and exec."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number)


def interactive(
    command: Sequence[str], *, env: Mapping[str, str], text: str | None = None, quiet: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command that handles signals itself: only the command reacts to Ctrl-C, and it gets SIGTERM if this process
    is killed. `text` is its standard input. Its output is captured if `quiet`, else printed."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        with subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            preexec_fn=functools.partial(_end_with_parent, signal.SIGTERM),
        ) as child:
            output, _ = child.communicate(text)
    finally:
        signal.signal(signal.SIGINT, before)
    return subprocess.CompletedProcess(command, child.returncode, output or "")


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    umask: int = -1,
    tick: Callable[[], bool] | None = None,
) -> int:
    """Run a command with its output in the file `log`, and return its exit status.

    The child never outlives this process: its process group is killed after Ctrl-C, SIGTERM or any exception, and the
    kernel kills it if this process is killed. `umask` is that of the child; -1 keeps the current one. `tick` is called
    ten times a second; if it returns False, the child is killed and the status is negative.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, _sigterm_as_exit():
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            process_group=0,
            umask=umask,
            preexec_fn=_end_with_parent,
        )
        try:
            while True:
                try:
                    return child.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    if tick is not None and not tick():
                        break
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        return child.returncode


def start(command: Sequence[str | Path], *, log: Path, env: Mapping[str, str]) -> int:
    """Start a process that outlives this one, with its output in the file `log`, and return its ID. It has its own
    session, so that it does not get Ctrl-C."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        command[0],
        [str(part) for part in command],
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def has_ended(child: int) -> bool:
    """Return whether a child process has ended. Do not call it again after it has returned True."""
    return os.waitpid(child, os.WNOHANG)[0] == child


@contextlib.contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Turn SIGTERM into SystemExit while the context is open.

    Does nothing if SIGTERM has another handler, or outside the main thread, where Python allows no handlers.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def exclusive(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which is created if missing and removed afterwards.

    `waiting` is called once if another process holds it. The kernel releases the lock when its holder ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
                waiting = None
            fcntl.flock(handle, fcntl.LOCK_EX)
        # If the last holder removed the file meanwhile, this lock is on a file that no other process will use.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == path.stat().st_ino:
                break
        os.close(handle)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def started_from(directory: Path) -> dict[int, str]:
    """Return the program names of this user's live processes that were started by a path inside `directory`, by ID.

    Only the program's path counts, not its arguments: an editor or `tail` may have one of the files open. A zombie has
    no command line and is not listed.
    """
    return {pid: name for pid in _numbers() if (name := _name_if_from(directory, pid))}


def _numbers() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _name_if_from(directory: Path, pid: int) -> str | None:
    try:
        entry = Path("/proc", str(pid))
        program = entry.joinpath("cmdline").read_bytes().split(b"\0", 1)[0]
        if program.startswith(os.fsencode(directory) + b"/") and entry.stat().st_uid == os.getuid():
            return Path(os.fsdecode(program)).name
    except OSError:
        pass
    return None


def _is_from(directory: Path, pid: int) -> bool:
    return _name_if_from(directory, pid) is not None


def kill(directory: Path, patience: float = 10.0, only: str | None = None) -> int:
    """Kill every process of `started_from(directory)`, or those whose program has the name `only`. Wait until their
    resources, such as ports, are released, and return their number.

    Raises TimeoutError if one has not ended after `patience` seconds. Sends SIGKILL, as kwokctl does: their data is
    removed afterwards or survives a crash, so that a graceful end has no benefit.
    """
    deadline = time.monotonic() + patience
    ended = 0
    while alive := [pid for pid, name in started_from(directory).items() if only in (None, name)]:
        for pid in alive:
            ended += _kill_one(pid, functools.partial(_is_from, directory), deadline)
    return ended


def kill_with(variable: str, value: str, program: str, patience: float = 10.0) -> int:
    """Kill every process of this user that has an environment variable of that value, and whose program or script has a
    name that begins with `program`. Wait until each has ended, and return their number. Raises TimeoutError as `kill`
    does."""
    deadline = time.monotonic() + patience
    entry = os.fsencode(f"{variable}={value}")

    def is_meant(pid: int) -> bool:
        with contextlib.suppress(OSError):
            process = Path("/proc", str(pid))
            command = os.fsdecode(process.joinpath("cmdline").read_bytes()).split("\0")[:2]
            if process.stat().st_uid == os.getuid() and any(Path(part).name.startswith(program) for part in command):
                return entry in process.joinpath("environ").read_bytes().split(b"\0")
        return False

    return sum(_kill_one(pid, is_meant, deadline) for pid in _numbers())


def _kill_one(pid: int, is_meant: Callable[[int], bool], deadline: float) -> bool:
    """Kill a process and wait for its end by a handle: its ID may be reused meanwhile. Its ports are released before
    the handle reports the end, but after its command line has disappeared."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_meant(pid):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        if not ended:
            raise TimeoutError(f"process {pid} does not end")
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
