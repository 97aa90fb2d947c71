"""Hosts made of namespaces: each has its own network, processes and root file system, and a real SSH server.

Nothing of one outlives the process that made it, however that ends: mounts, addresses and processes belong to
namespaces whose first process is killed with its parent. What is left is a folder, which pytest removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from gpufleet.bare_metal.ssh import SshHost, SshLogin, known_hosts, ssh_config
from tests.hosts.base_layer import GUEST, USER, BaseLayer

# Programs that make a host; `sshd` and `sudo` are the base layer's.
PROGRAMS = ("ip", "mount", "nsenter", "ssh", "ssh-keygen", "unshare")

PATIENCE = 60
"""Seconds that something which takes a moment may take."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def missing() -> list[str]:
    """What this machine lacks to make hosts; empty where it has all."""
    lacks = [] if os.geteuid() == 0 else ["root"]
    return lacks + [program for program in PROGRAMS if shutil.which(program) is None]


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _holder(*namespaces: str, script: str, arguments: Sequence[str] = (), log: pathlib.Path) -> subprocess.Popen[str]:
    """A process in namespaces of its own. Its child is killed when it ends, and it when this process does."""
    with log.open("a") as console:
        return subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--kill-child", "sh", "-ec", script, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=console,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_end_with_parent,
        )


def _end(holder: subprocess.Popen[str]) -> None:
    with holder:
        holder.kill()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


BOOT = r"""
root=$1 address=$2 name=$3
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/merged"
cd "$root/merged"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup sys/fs/cgroup 2>/dev/null || :
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm run/sshd run/lock
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
for node in null zero full random urandom tty; do
  : > dev/$node
  mount --bind /dev/$node dev/$node
done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
hostname "$name"
read -r plugged
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
exec chroot . /usr/sbin/sshd -D -e
"""


@dataclass(frozen=True)
class Ended:
    """How a command on a host ended."""

    code: int
    out: str
    err: str


@dataclass
class Host:
    """One host, which runs."""

    name: str
    address: str
    folder: pathlib.Path
    host_key: str
    """Its public key, as a line of its own `.pub` file."""
    plugged_in: Callable[[], bool] = field(repr=False)
    """Whether its cable is in the switch."""
    boot_seconds: float = 0
    """From the first step to an SSH server that answers."""
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def ssh(self) -> SshHost:
        """The host, as components know it."""
        return SshHost(name=self.name, address=self.address, host_keys=[self.host_key])

    @property
    def pid(self) -> int:
        """The process that its namespaces belong to."""
        assert self._process, f"{self.name} is down"
        return self._process.pid

    def path(self, path: str) -> pathlib.Path:
        """A file of the host, from outside."""
        return pathlib.Path(f"/proc/{self.pid}/root{self.folder}/merged") / path.lstrip("/")

    def run(self, *command: str, stdin: str = "", check: bool = True) -> Ended:
        """Runs a command as root on the host, without SSH."""
        kinds = {"net": "net", "uts": "uts", "mount": "mnt", "pid": "pid_for_children"}
        entered = ["nsenter", *(f"--{kind}=/proc/{self.pid}/ns/{file}" for kind, file in kinds.items())]
        done = subprocess.run(
            [*entered, "chroot", f"{self.folder}/merged", *command],
            input=stdin,
            env={"PATH": HOST_PATH, "HOME": "/root", "LC_ALL": "C"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
        return Ended(done.returncode, done.stdout, done.stderr)

    def calls(self, program: str) -> list[str]:
        """What a stand-in has been called with, one line a call."""
        log = self.path(f"/var/log/stand-ins/{program}")
        return log.read_text().splitlines() if log.exists() else []

    def add_unit(self, name: str) -> None:
        """Lets the stand-in `systemctl` know a unit, which runs."""
        state = self.path(f"/var/lib/stand-ins/{name}")
        state.parent.mkdir(exist_ok=True)
        state.write_text("active\n")

    def add_gpus(
        self,
        *,
        vendor: str,
        pci_class: str,
        count: int,
        module: str | None,
        render_gid: int | None,
        files: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Lets the host's kernel seem to know GPUs: folders lie over its own in /sys, and a node in /dev. `files` are
        further files of each GPU.

        They are gone when the host has been stopped.
        """
        devices, modules = self.path("/srv/stand-ins/devices"), self.path("/srv/stand-ins/module")
        modules.mkdir(parents=True)
        if module:
            (modules / module).mkdir()
        for number in range(count):
            device = devices / f"0000:{number + 1:02x}:00.0"
            for name, content in {"vendor": vendor, "class": pci_class, **files}.items():
                (device / name).parent.mkdir(parents=True, exist_ok=True)
                (device / name).write_text(f"{content}\n")
        self.run("mount", "--bind", "/srv/stand-ins/module", "/sys/module")
        self.run("mount", "--bind", "/srv/stand-ins/devices", "/sys/bus/pci/devices")
        if render_gid is not None:
            node = "/dev/dri/renderD128"
            # Nothing opens it: the numbers are those of /dev/null.
            self.run("sh", "-ec", f"mkdir /dev/dri; mknod {node} c 1 3; chgrp {render_gid} {node}")

    def unplug(self) -> None:
        """Cuts its network, as a pulled cable does: what is connected hears nothing more."""
        self.run("ip", "link", "set", "eth0", "down")

    def plug(self) -> None:
        """Puts the cable back."""
        self.run("ip", "link", "set", "eth0", "up")

    def stop(self) -> None:
        """Ends it, and everything that runs on it. Its files stay."""
        self.end()
        # The kernel takes a dead namespace's interfaces away a moment later; until then it refuses connections.
        until(lambda: not self.plugged_in(), f"the cable of {self.name} to go")

    def end(self) -> None:
        """The same, without waiting for its network to go."""
        if self._process:
            _end(self._process)
            self._process = None


HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Hosts:
    """Hosts of one test, on a network of their own in 198.18.0.0/15, which RFC 2544 keeps for tests."""

    def __init__(self, folder: pathlib.Path, base: BaseLayer) -> None:
        self.folder, self.base = folder, base
        self.started: dict[str, Host] = {}
        self._switch: subprocess.Popen[str] | None = None
        self._subnet = ""
        self.interface = ("", "")
        self._numbers = itertools.count(2)
        self._key = folder / "id_ed25519"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        _key_pair(self._key)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._plug_in()
            undo.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _plug_in(self) -> None:
        """A bridge in a namespace, and one cable from it to this machine. The kernel refuses an interface's name
        twice, so two test processes never take the same subnet."""
        script = "ip link add bridge type bridge; ip link set bridge up; exec sleep infinity"
        self._switch = _holder("--net", script=script, log=self.folder / "switch.log")
        until(lambda: self._in_switch("ip", "link", "show", "bridge"), "a bridge")
        for number in range(256):
            with contextlib.suppress(OSError):
                _ip("link", "add", f"gpufleet{number}", "type", "veth", "peer", "machine", "netns", self._switch_pid)
                self._subnet = f"198.18.{number}"
                break
        else:
            raise OSError("no interface gpufleet0 to gpufleet255 can be made")
        assert self._in_switch("ip", "link", "set", "machine", "master", "bridge", "up")
        _ip("address", "add", f"{self._subnet}.1/24", "dev", f"gpufleet{number}")
        _ip("link", "set", f"gpufleet{number}", "up")
        self.interface = next(each for each in interfaces() if each[0] == f"gpufleet{number}")

    @property
    def _switch_pid(self) -> str:
        assert self._switch
        return str(self._switch.pid)

    def _in_switch(self, *command: str) -> bool:
        entered = ["nsenter", f"--net=/proc/{self._switch_pid}/ns/net", *command]
        return subprocess.run(entered, capture_output=True, timeout=PATIENCE, check=False).returncode == 0

    @property
    def machine_address(self) -> str:
        """Address under which the hosts reach this machine."""
        return f"{self._subnet}.1"

    @property
    def private_key(self) -> str:
        """The key that every host's users let in."""
        return self._key.read_text()

    @property
    def login(self) -> SshLogin:
        """The user who may use sudo without a password."""
        return SshLogin(user=USER, private_key=self.private_key, dial_seconds=5, dial_attempts=2)

    @property
    def guest(self) -> SshLogin:
        """A user who may not."""
        return SshLogin(user=GUEST, private_key=self.private_key, dial_seconds=5, dial_attempts=2)

    def narrow(self, host: Host, mtu: int) -> None:
        """Has the switch lose packets of a host that are larger, as one with a wrong MTU does: silently."""
        port = f"port{host.address.rpartition('.')[2]}"
        assert self._in_switch("ip", "link", "set", port, "mtu", str(mtu))

    def ssh(self, host: Host, *command: str, stdin: str = "", login: SshLogin | None = None) -> Ended:
        """Runs a command on a host by the real SSH client, as components have it configured."""
        login = login or self.login
        known, settings = self.folder / "known_hosts", self.folder / f"ssh_config-{login.user}"
        known.write_text(known_hosts([host.ssh], login))
        settings.write_text(ssh_config([host.ssh], login, known_hosts_file=str(known), identity_file=str(self._key)))
        done = subprocess.run(
            ["ssh", "-F", str(settings), host.name, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, name: str) -> Host:
        """Starts a host, or starts one again that has been stopped: with its files and its address."""
        began = time.monotonic()
        host = self.started.get(name) or self._make(name)
        self.started[name] = host
        host._process = _holder(
            *("--mount", "--net", "--pid", "--uts"),
            script=BOOT,
            arguments=[str(host.folder), host.address, name],
            log=host.folder / "console.log",
        )
        try:
            self._cable(host)
            # Not by connecting: a packet sent too early is repeated only a second later.
            until(lambda: _listens(host.pid), f"an SSH server on {name}", host.folder / "console.log")
        except BaseException:
            host.end()
            raise
        host.boot_seconds = time.monotonic() - began
        return host

    def _make(self, name: str) -> Host:
        folder = self.folder / name
        for part in ("work", "merged"):
            (folder / part).mkdir(parents=True)
        self.base.copy_to(folder / "upper")
        ssh = folder / "upper" / "etc" / "ssh"
        ssh.mkdir(parents=True, exist_ok=True)
        _key_pair(ssh / "ssh_host_ed25519_key")
        for user in (USER, GUEST):
            _let_in(folder / "upper" / "home" / user / ".ssh", self._key.with_suffix(".pub").read_text())
        (folder / "upper" / "etc" / "hostname").write_text(f"{name}\n")
        (folder / "upper" / "etc" / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        (folder / "upper" / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
        (folder / "upper" / "etc" / "resolv.conf").write_text(f"nameserver {self.machine_address}\n")
        public = (ssh / "ssh_host_ed25519_key.pub").read_text().strip()
        number = next(self._numbers)
        port = f"port{number}"
        return Host(
            name, f"{self._subnet}.{number}", folder, public, lambda: self._in_switch("ip", "link", "show", port)
        )

    def _cable(self, host: Host) -> None:
        """A cable from the host to the bridge."""
        number = host.address.rpartition(".")[2]
        own = pathlib.Path("/proc/self/ns/net").readlink()
        until(lambda: pathlib.Path(f"/proc/{host.pid}/ns/net").readlink() != own, "a network namespace")
        ends = ("netns", str(host.pid), "type", "veth", "peer", f"port{number}", "netns", self._switch_pid)
        _ip("link", "add", "eth0", *ends)
        assert self._in_switch("ip", "link", "set", f"port{number}", "master", "bridge", "up")
        assert host._process
        assert host._process.stdin
        host._process.stdin.write("plugged\n")
        host._process.stdin.flush()

    def close(self) -> None:
        """Ends all hosts and their network; a second time does nothing."""
        for host in self.started.values():
            host.end()
        if self._switch:
            _end(self._switch)
            self._switch = None
            # The kernel takes a dead namespace's interfaces away a moment later.
            until(lambda: self.interface not in interfaces(), "the network to go")


def interfaces() -> set[tuple[str, str]]:
    """Cables of all test processes, by name and by the number that the kernel never gives twice."""
    found = set()
    for link in pathlib.Path("/sys/class/net").glob("gpufleet*"):
        # Others' may go meanwhile.
        with contextlib.suppress(OSError):
            found.add((link.name, (link / "ifindex").read_text().strip()))
    return found


def _key_pair(path: pathlib.Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)],
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )


def _let_in(folder: pathlib.Path, public_key: str) -> None:
    """Makes a user's `.ssh`; sshd wants it to be root's or the user's, and nobody else's to write."""
    folder.mkdir(parents=True, mode=0o755)
    (folder / "authorized_keys").write_text(public_key)


def _listens(pid: int) -> bool:
    """Whether something listens on port 22 in the network of a process (state 0A in /proc/net/tcp)."""
    table = pathlib.Path(f"/proc/{pid}/net/tcp").read_text()
    return ":0016 00000000:0000 0A" in table


def until(true: Callable[[], bool], what: str, log: pathlib.Path | None = None) -> None:
    """Waits for something that is to be true soon, on a busy machine too."""
    ends = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError(f"waited {PATIENCE} seconds for {what}: {log.read_text()[-2000:] if log else ''}")
        time.sleep(0.01)
