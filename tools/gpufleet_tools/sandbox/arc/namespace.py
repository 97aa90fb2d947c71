"""Entry point of a container's process: creates namespaces, then starts the program as a kubelet would.

    python -I -S namespace.py FOLDER SOCKET

FOLDER has `start.json` and the files to mount. The network namespace has only a loopback interface. The process listens
there at the ports of `start.json`, sends the listening sockets through the descriptor SOCKET, and then executes the
program. So all connections of the program lead to the holder of the sockets. Only the standard library is imported,
since this runs once for each container.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
import sys

# From linux/sched.h, linux/mount.h, linux/if.h, linux/sockios.h and linux/prctl.h.
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x4000000, 0x10000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_IFF_UP, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 1, 0x8913, 0x8914
_PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None, use_errno=True)


def main(folder: pathlib.Path, channel: socket.socket) -> None:
    """Create the namespaces and execute the program."""
    start = json.loads((folder / "start.json").read_text())
    parent = os.getppid()
    _unshare()
    socket.sethostname(start["hostname"])
    _mounts(folder)
    _loopback_up()
    sockets = [_listening(port) for port in start["ports"]]
    socket.send_fds(channel, [b"ready"], [each.fileno() for each in sockets])
    channel.close()
    # Not earlier: the kernel clears it when a process gains privileges.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    os.execve(start["command"][0], start["command"], start["environment"])


def _unshare() -> None:
    user, group = os.getuid(), os.getgid()
    flags = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWNET | (_CLONE_NEWUSER if user else 0)
    _check(_LIBC.unshare(flags), "new namespaces")
    if user:
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def _mounts(folder: pathlib.Path) -> None:
    """Mount the service account at its usual path, and a hosts file whose names lead to loopback."""
    account = {each.name: each.read_bytes() for each in (folder / "serviceaccount").iterdir()}
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount(str(folder / "hosts"), "/etc/hosts", None, _MS_BIND)
    run = pathlib.Path("/var/run").resolve()
    _mount("tmpfs", str(run), "tmpfs", 0)
    mounted = run / "secrets/kubernetes.io/serviceaccount"
    mounted.mkdir(parents=True)
    for name, content in account.items():
        (mounted / name).write_bytes(content)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = (source.encode(), target.encode(), kind.encode() if kind else None)
    _check(_LIBC.mount(*encoded, ctypes.c_ulong(flags), None), f"mount at {target}")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack("16sh14x", answer)[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _listening(port: int) -> socket.socket:
    result = socket.socket()
    result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    result.bind(("127.0.0.1", port))
    result.listen(128)
    return result


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
