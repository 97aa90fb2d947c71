"""Processes and locks: children that end with us, and what Linux says of the processes that outlive us."""

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

# From linux/prctl.h: the signal this process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
# Looked up here, because the child may not take locks between fork and exec, and dlopen takes some.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def _end_with_parent(number: int = signal.SIGKILL) -> None:
    """Runs in the child between fork and exec."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number)


def attended(
    command: Sequence[str], *, env: Mapping[str, str], text: str | None = None, quiet: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command that cleans up after itself when it is asked to stop: Ctrl-C is left to it alone, and when we are
    killed it gets SIGTERM. `text` goes to its standard input; its output is caught when `quiet`, else printed."""
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
            said, _ = child.communicate(text)
    finally:
        signal.signal(signal.SIGINT, before)
    return subprocess.CompletedProcess(command, child.returncode, said or "")


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    umask: int = -1,
    tick: Callable[[], bool] | None = None,
) -> int:
    """Run a command to its end, its output in the file `log`, and return its exit status.

    The child never outlives us: it is the leader of a process group that is killed when we leave by Ctrl-C,
    SIGTERM or any exception, and the kernel kills it when we are killed outright. `umask` is the child's, -1
    leaves ours. `tick` is called ten times a second while it runs; when it returns False the child is killed
    and the status is negative.
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
    """Start a process that outlives us, its output in the file `log`, and return its id: in a session of its own, so
    that Ctrl-C does not reach it."""
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
    """Whether a process that we started has ended; to be asked no more once it has."""
    return os.waitpid(child, os.WNOHANG)[0] == child


@contextlib.contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """While a child runs, SIGTERM unwinds the stack instead of ending us on the spot.

    Left alone when someone else handles SIGTERM, and off the main thread, where Python allows no handlers.
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
    """Hold the lock file `path`, which is made when missing and removed when done.

    `waiting` is called once when another process holds it. The kernel lets go of the lock when its holder
    dies.
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
        # Its last holder removed the file while we waited: what we hold is a lock nobody else will look at.
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
    """This user's live processes whose program was started by a path inside `directory`: id -> program's
    name.

    By the program's path and not by any argument: an editor or a `tail` with one of our files open is none of
    ours. A dead process that nobody waited for has no command line and is not listed.
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
    """Kill every process of `started_from(directory)`, or those whose program has the name `only`, wait until all that
    they held (ports) is free, and return how many there were.

    Raises TimeoutError when one has not ended after `patience` seconds. SIGKILL at once, as kwokctl does:
    nothing they hold is worth a graceful end, since their data is removed or was made to survive a crash.
    """
    deadline = time.monotonic() + patience
    ended = 0
    while alive := [pid for pid, name in started_from(directory).items() if only in (None, name)]:
        for pid in alive:
            ended += _kill_one(pid, functools.partial(_is_from, directory), deadline)
    return ended


def kill_with(variable: str, value: str, program: str, patience: float = 10.0) -> int:
    """Kill every process of this user that was started with a variable of that value in its environment and whose
    program has a name that begins with `program`, a script's too; wait until each has ended, and return how many there
    were. Raises TimeoutError as `kill` does."""
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
    """By a handle and not by its id alone, which might be another's by now; and because a process lets go of
    its ports after its command line is gone but before its handle says that it has ended."""
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
