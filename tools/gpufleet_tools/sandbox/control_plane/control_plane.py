"""Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler and kwok.

kwokctl creates and starts it (certificates, arguments, order), as processes of this user that listen on loopback only.
This module makes `up` safe to call at any time, also after an interruption or a reboot: it locks the cluster, verifies
which processes run, and creates the control plane again if necessary.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.errors import SandboxError

Change = Literal["created", "started", "unchanged"]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class _Component:
    """One of kwokctl's five processes: its program, and kwokctl's options for its file and ports."""

    program: str
    binary_option: str
    port_options: tuple[str, ...]


_COMPONENTS: Mapping[str, _Component] = {
    "etcd": _Component("etcd", "etcdBinary", ("etcdPort", "etcdPeerPort")),
    "kube-apiserver": _Component("kube-apiserver", "kubeApiserverBinary", ("kubeApiserverPort",)),
    "kube-controller-manager": _Component(
        "kube-controller-manager", "kubeControllerManagerBinary", ("kubeControllerManagerPort",)
    ),
    "kube-scheduler": _Component("kube-scheduler", "kubeSchedulerBinary", ("kubeSchedulerPort",)),
    "kwok-controller": _Component("kwok", "kwokControllerBinary", ("kwokControllerPort",)),
}
# Below the ephemeral ports of Linux (32768 and above): outgoing connections cannot occupy ports of a stopped cluster.
_PORTS = range(20_000, 32_768)
_CREATE_ATTEMPTS = 3
_STAGES = Path(__file__).parent / "stages.yaml"
_POD_STAGE = "  resourceRef: {apiGroup: v1, kind: Pod}\n  selector:\n    matchExpressions:\n"
_WITHOUT_ARC = (
    _POD_STAGE,
    f"{_POD_STAGE}      - key: '.metadata.labels[\"app.kubernetes.io/component\"]'\n"
    "        operator: NotIn\n        values: [controller-manager, runner-scale-set-listener]\n",
)
# Seconds until a control plane is ready. Creating one takes 4 on 2 idle cores, and took 30 on a machine that was
# compiling.
_TIMEOUT = 120.0


def state_directory() -> Path:
    """Return `$XDG_STATE_HOME/gpufleet`, or `~/.local/state/gpufleet`, which has one directory for each cluster."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "gpufleet"


def cluster_name(project_dir: Path, stack: str) -> str:
    """Return the name of a stack's cluster in the checkout `project_dir`, such as `mi300-1f0c9a52`.

    Another checkout has another path and therefore another cluster. The name is a valid label value of at most 40
    characters.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")[:31].rstrip("-") or "stack"
    digest = hashlib.sha256(f"{project_dir.resolve()}\0{stack}".encode()).hexdigest()
    return f"{readable}-{digest[:8]}"


@dataclass(frozen=True)
class ControlPlane:
    """A control plane: its name, its directory and its programs.

    All files are in `directory`, except for a lock file next to it, and are private to this user. The processes outlive
    the terminal and end with `down`.
    """

    name: str
    directory: Path
    binaries: Binaries
    runs_arc: bool = False
    """Whether ARC's own controller and listeners run. Then sandbox/arc is the kubelet of their pods, not kwok."""

    @classmethod
    def of(cls, project_dir: Path, stack: str, binaries: Binaries, *, runs_arc: bool = False) -> ControlPlane:
        """Return the control plane of a stack in the checkout `project_dir`."""
        name = cluster_name(project_dir, stack)
        return cls(name, state_directory() / name, binaries, runs_arc)

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of a cluster administrator; mode 0600. It exists after `up`."""
        return self.directory / "kubeconfig"

    @property
    def logs(self) -> Path:
        """Directory with a log file of each process."""
        return self._cluster / "logs"

    @property
    def certificate_authority(self) -> Path:
        """CA certificate of the API server. It exists after `up`."""
        return self._cluster / "pki" / "ca.crt"

    @property
    def address(self) -> str:
        """URL of the API server, known after `up`."""
        return f"https://{LOOPBACK}:{self._ports()['kubeApiserverPort']}"

    def up(self) -> Change:
        """Start the control plane unless it runs. Return "unchanged" if it ran, "started" if processes were started and
        all objects kept, "created" if it is new and empty.

        It is created again if an earlier `up` was interrupted, if its programs or stages have changed, and if it does
        not start. So the caller applies its objects after every `up`. Raises SandboxError if the system is not Linux, a
        program is missing, or the control plane does not start.
        """
        if sys.platform != "linux":
            raise SandboxError("the sandbox requires Linux: it identifies its processes in /proc")
        with self.locked():
            if self._created_as_configured():
                if self.running():
                    return "unchanged"
                if self._start():
                    return "started"
            for _ in range(_CREATE_ATTEMPTS):
                self._remove()
                if self._create():
                    return "created"
            raise SandboxError(self._failure())

    def down(self) -> bool:
        """End the processes and remove the directory. Return whether there was anything to remove.

        `kwokctl delete` is not used: after a reboot it kills any process with a recorded ID, and it requires kwokctl.
        Raises SandboxError if a process does not end.
        """
        with self.locked():
            return self._remove()

    def running(self) -> bool:
        """Return whether all five processes are alive and the API server is ready."""
        return self._all_alive() and self._ready()

    def pids(self) -> dict[int, str]:
        """Return the component names of this control plane's live processes, by process ID."""
        return processes.started_from(self._cluster)

    @property
    def _cluster(self) -> Path:
        return self.directory / "clusters" / self.name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for starting and ending processes of this cluster. Raises SandboxError for errors of the file
        system."""
        try:
            with processes.exclusive(self.directory.with_name(self.directory.name + ".lock")):
                yield
        except OSError as error:
            place = error.filename or self.directory
            raise SandboxError(f"cluster {self.name}: {place}: {error.strerror or error}") from error

    @property
    def _created(self) -> Path:
        """File that marks a complete creation. It has a digest of the configuration, which shows later changes."""
        return self.directory / "created"

    def _created_as_configured(self) -> bool:
        try:
            return self._created.read_text() == self._fingerprint()
        except FileNotFoundError:
            return False

    def _fingerprint(self) -> str:
        return hashlib.sha256(self._configuration({}).encode()).hexdigest()

    def _ports(self) -> dict[str, int]:
        ports: dict[str, int] = json.loads((self.directory / "ports.json").read_text())
        return ports

    def _all_alive(self) -> bool:
        return sorted(self.pids().values()) == sorted(_COMPONENTS)

    def _create(self) -> bool:
        """Create and start the control plane on free ports. Return False if a process ended at once, for example if
        another program has taken one of the ports."""
        self.directory.mkdir(parents=True, mode=0o700)
        options = [option for component in _COMPONENTS.values() for option in component.port_options]
        ports = dict(zip(options, free_ports(len(options)), strict=True))
        (self.directory / "ports.json").write_text(json.dumps(ports))
        configuration = self.directory / "kwokctl.yaml"
        configuration.write_text(self._configuration(ports))
        status = self._kwokctl("create", "cluster", "--config", configuration, "--kubeconfig", self.kubeconfig)
        if status > 0:
            # kwokctl failed by itself: other ports would not help.
            raise SandboxError(self._failure())
        if status < 0 or not self._wait_until_running():
            return False
        self.kubeconfig.chmod(0o600)
        self._created.write_text(self._fingerprint())
        return True

    def _start(self) -> bool:
        """Start the processes that are not running. Return whether that succeeded."""
        self._forget_dead_processes()
        if not self._ports_of_dead_processes_are_free(timeout=2):
            return False
        if self._all_alive():
            # All processes are alive, but the API server does not respond: it may be slow under load.
            return self._wait_until_running(timeout=15)
        return self._kwokctl("start", "cluster") == 0 and self._wait_until_running()

    def _remove(self) -> bool:
        try:
            ended = processes.kill(self.directory)
        except TimeoutError as error:
            raise SandboxError(f"cluster {self.name}: {error}; end them yourself, then try again") from error
        if not self.directory.exists():
            return ended > 0
        shutil.rmtree(self.directory)
        return True

    def _forget_dead_processes(self) -> None:
        """Remove kwokctl's files of dead processes: after a reboot, another process may have the recorded ID."""
        alive = self.pids()
        for file in (self._cluster / "pids").glob("*.pid"):
            text = file.read_text().strip()
            if not text.isdigit() or alive.get(int(text)) != file.stem:
                file.unlink()

    def _ports_of_dead_processes_are_free(self, timeout: float) -> bool:
        """Wait until the ports of dead processes are free: a process that has just ended may still hold its port."""
        deadline = time.monotonic() + timeout
        alive = set(self.pids().values())
        dead = [component for name, component in _COMPONENTS.items() if name not in alive]
        needed = [self._ports()[option] for component in dead for option in component.port_options]
        while not all(is_free(port) for port in needed):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _wait_until_running(self, timeout: float = _TIMEOUT) -> bool:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._all_alive():
            if self._ready():
                # Check again: a process whose port is taken ends about when the API server becomes ready.
                return self._all_alive()
            time.sleep(0.05)
        return False

    def _ready(self) -> bool:
        """Return whether the API server is ready. Its certificate must be that of this cluster."""
        pki = self._cluster / "pki"
        try:
            port = self._ports()["kubeApiserverPort"]
            context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
            server = http.client.HTTPSConnection(LOOPBACK, port, timeout=5, context=context)
            with contextlib.closing(server):
                server.request("GET", "/readyz")
                return server.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def _kwokctl(self, *arguments: str | Path) -> int:
        """Run kwokctl and return its exit status, which is negative if it was killed. It is killed as soon as one of
        its processes has ended, because it would poll the API server for two minutes."""
        kwokctl = self.binaries.path("kwokctl")
        if not os.access(kwokctl, os.X_OK):
            raise SandboxError(f"{kwokctl} is missing; run `gpufleet sandbox up` to install it again")
        # KWOK_* settings of the user's own clusters would affect this one, and kubectl has a cache in HOME.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KWOK_")}
        environment |= {
            "KWOK_WORKDIR": str(self.directory),
            "HOME": str(self.directory),
            "PATH": f"{self.binaries.directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        command = [kwokctl, "--name", self.name, *arguments]
        log = self.directory / "kwokctl.log"
        return processes.run(command, log=log, env=environment, umask=0o077, tick=self._none_ended)

    def _none_ended(self) -> bool:
        """Return whether every process that kwokctl has recorded is alive."""
        alive = self.pids()
        texts = [file.read_text() for file in (self._cluster / "pids").glob("*.pid")]
        return all(int(text) in alive for text in texts if text)

    def _failure(self) -> str:
        """Return one line with the process that ended, or kwokctl, and the last line of its log."""
        alive = set(self.pids().values())
        logs = [self.directory / "kwokctl.log"]
        logs += [self.logs / f"{name}.log" for name in reversed(list(_COMPONENTS)) if name not in alive]
        for log in reversed([log for log in logs if log.exists()]):
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return f"the control plane does not start: {log.stem}: {_message(lines[-1])} (log: {log})"
        return f"the control plane does not start, and its logs have no message (logs: {self.logs})"

    def _configuration(self, ports: dict[str, int]) -> str:
        """Return kwokctl's configuration: its options, and kwok's stages. The options are JSON, which is valid YAML:
        importing a YAML library would take a tenth of the time of an `up` that changes nothing."""
        options: dict[str, Any] = {
            "runtime": "binary",
            # By default all components listen on every interface, etcd without authentication.
            "bindAddress": LOOPBACK,
            # With the controllers' client-side limits, 400 pods take 22 seconds instead of 7.
            "disableQPSLimits": True,
            "quietPull": True,
            **ports,
        }
        if self.runs_arc:
            # Objects of this kind name the log files of ARC's pods (sandbox/arc/pod_logs.py).
            options["enableCRDs"] = ["Logs"]
        # kwokctl would download programs that have no path.
        for component in _COMPONENTS.values():
            options[component.binary_option] = str(self.binaries.path(component.program))
        options["kubectlBinary"] = str(self.binaries.path("kubectl"))
        head = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokctlConfiguration",
            "options": options,
        }
        stages = _STAGES.read_text()
        return json.dumps(head) + "\n---\n" + (stages.replace(*_WITHOUT_ARC) if self.runs_arc else stages)


def _message(line: str) -> str:
    """Return the message of a line in a log: kwokctl and etcd write JSON, the others plain text."""
    try:
        entry = json.loads(line)
        return ": ".join(str(entry[key]) for key in ("msg", "err", "error") if key in entry) or line
    except (ValueError, TypeError):
        return line.strip()


def free_ports(count: int) -> list[int]:
    """Return random free ports. kwokctl itself counts down from 32767, so that two clusters that are created at the
    same time would choose the same ports."""
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise SandboxError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop - 1}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the servers do: a port with connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
