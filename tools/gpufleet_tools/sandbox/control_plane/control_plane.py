"""A Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler, and kwok.

kwokctl makes it and starts it (certificates, arguments, order), as processes of this user that listen on
loopback only. What is added here is what makes `up` safe to call at any time, after an interruption or a
reboot as well: a lock per cluster, a look at what is really running, and a clean start when nothing else will
do.
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
from typing import Literal

from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.errors import SandboxError

Change = Literal["created", "started", "unchanged"]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class _Component:
    """One of kwokctl's five processes: the program, and the options that give kwokctl its file and its
    ports."""

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
# Below what Linux gives to outgoing connections (32768 and up), so that none of those can hold one of our
# ports when a stopped cluster starts again.
_PORTS = range(20_000, 32_768)
_CREATE_ATTEMPTS = 3
_STAGES = Path(__file__).parent / "stages.yaml"
_POD_STAGE = "  resourceRef: {apiGroup: v1, kind: Pod}\n  selector:\n    matchExpressions:\n"
_WITHOUT_ARC = (
    _POD_STAGE,
    f"{_POD_STAGE}      - key: '.metadata.labels[\"app.kubernetes.io/component\"]'\n"
    "        operator: NotIn\n        values: [controller-manager, runner-scale-set-listener]\n",
)
# Seconds for a control plane to answer. Creating one takes 4 on 2 idle cores; a machine busy compiling took
# 30.
_PATIENCE = 120.0


def state_directory() -> Path:
    """`$XDG_STATE_HOME/gpufleet`, or `~/.local/state/gpufleet`: one directory per cluster."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "gpufleet"


def cluster_name(project_dir: Path, stack: str) -> str:
    """The name of the cluster of `stack` in the checkout `project_dir`, such as `mi300-1f0c9a52`.

    A second checkout has another path and so another cluster. The name is a valid label value and at most 40
    characters long, whatever the stack is called.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")[:31].rstrip("-") or "stack"
    digest = hashlib.sha256(f"{project_dir.resolve()}\0{stack}".encode()).hexdigest()
    return f"{readable}-{digest[:8]}"


@dataclass(frozen=True)
class ControlPlane:
    """One control plane: its name, the directory that holds all of it, and the programs it runs.

    Nothing is written outside `directory` (and a lock file next to it); all of it is private to this user.
    The processes outlive the terminal and end with `down`.
    """

    name: str
    directory: Path
    binaries: Binaries
    runs_arc: bool = False
    """Whether ARC's own controller and listeners run: kwok leaves their pods to the kubelet in sandbox/arc."""

    @classmethod
    def of(cls, project_dir: Path, stack: str, binaries: Binaries, *, runs_arc: bool = False) -> ControlPlane:
        """The control plane of `stack` in the checkout `project_dir`, in this user's state directory."""
        name = cluster_name(project_dir, stack)
        return cls(name, state_directory() / name, binaries, runs_arc)

    @property
    def kubeconfig(self) -> Path:
        """The file with address and credentials of a cluster administrator; mode 0600. There after `up`."""
        return self.directory / "kubeconfig"

    @property
    def logs(self) -> Path:
        """The directory with a log file of each process."""
        return self._cluster / "logs"

    @property
    def certificate_authority(self) -> Path:
        """The certificate that the API server's own is signed with. There after `up`."""
        return self._cluster / "pki" / "ca.crt"

    @property
    def address(self) -> str:
        """URL of the API server. There after `up`."""
        return f"https://{LOOPBACK}:{self._ports()['kubeApiserverPort']}"

    def up(self) -> Change:
        """Have it running: "unchanged" when it was, "started" when processes had to be started and every
        object was kept, "created" when it is new and empty.

        It is created anew when an earlier `up` was interrupted, when the programs or the stages are not those
        it was created with, and when it does not start: so the caller applies its objects after every `up`.
        Raises SandboxError: not Linux, a program missing, does not start.
        """
        if sys.platform != "linux":
            raise SandboxError("the sandbox needs Linux: it reads /proc to tell which processes are its own")
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
            raise SandboxError(self._why_not())

    def down(self) -> bool:
        """End the processes and remove the directory; returns whether there was anything to remove.

        Not with `kwokctl delete`, which kills whatever process now has the id it wrote down before a reboot,
        and which needs kwokctl. Raises SandboxError when a process does not end.
        """
        with self.locked():
            return self._remove()

    def running(self) -> bool:
        """Whether all five processes are alive and the API server says it is ready."""
        return self._all_alive() and self._ready()

    def pids(self) -> dict[int, str]:
        """The processes of this control plane that are alive: id -> component's name."""
        return processes.started_from(self._cluster)

    @property
    def _cluster(self) -> Path:
        return self.directory / "clusters" / self.name

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One command at a time that starts or ends processes of this cluster. What the file system refuses is said in
        one line."""
        try:
            with processes.exclusive(self.directory.with_name(self.directory.name + ".lock")):
                yield
        except OSError as error:
            place = error.filename or self.directory
            raise SandboxError(f"cluster {self.name}: {place}: {error.strerror or error}") from error

    @property
    def _created(self) -> Path:
        """Written when creation is complete: without it the directory is the remains of an interrupted one.
        Holds a digest of the configuration, to tell when that has changed since."""
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
        """Create and start it on ports that are free now. False when a process ended at once, as it does when
        another program took one of the ports in the meantime."""
        self.directory.mkdir(parents=True, mode=0o700)
        options = [option for component in _COMPONENTS.values() for option in component.port_options]
        ports = dict(zip(options, free_ports(len(options)), strict=True))
        (self.directory / "ports.json").write_text(json.dumps(ports))
        configuration = self.directory / "kwokctl.yaml"
        configuration.write_text(self._configuration(ports))
        status = self._kwokctl("create", "cluster", "--config", configuration, "--kubeconfig", self.kubeconfig)
        if status > 0:
            # It gave up by itself: other ports would not help.
            raise SandboxError(self._why_not())
        if status < 0 or not self._wait_until_running():
            return False
        self.kubeconfig.chmod(0o600)
        self._created.write_text(self._fingerprint())
        return True

    def _start(self) -> bool:
        """Start the processes that are not running. False when that did not work."""
        self._forget_dead_processes()
        if not self._ports_of_the_dead_are_free(patience=2):
            return False
        if self._all_alive():
            # They are all there and the API server does not answer: give it the time it takes under load.
            return self._wait_until_running(patience=15)
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
        """kwokctl takes any process with the id it wrote down for its own: after a reboot, anyone's."""
        alive = self.pids()
        for file in (self._cluster / "pids").glob("*.pid"):
            text = file.read_text().strip()
            if not text.isdigit() or alive.get(int(text)) != file.stem:
                file.unlink()

    def _ports_of_the_dead_are_free(self, patience: float) -> bool:
        """Waits a little, because a process that has just ended may not have let go of its port."""
        deadline = time.monotonic() + patience
        alive = set(self.pids().values())
        dead = [component for name, component in _COMPONENTS.items() if name not in alive]
        needed = [self._ports()[option] for component in dead for option in component.port_options]
        while not all(is_free(port) for port in needed):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _wait_until_running(self, patience: float = _PATIENCE) -> bool:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._all_alive():
            if self._ready():
                # Once more: one that could not have its port ends about when the API server is ready.
                return self._all_alive()
            time.sleep(0.05)
        return False

    def _ready(self) -> bool:
        """Ask the API server, and believe it only if its certificate is this cluster's."""
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
        """Run kwokctl and return its exit status, negative when it was killed: which is done as soon as one of
        the processes it started has ended, because it would go on asking the API server for two minutes."""
        kwokctl = self.binaries.path("kwokctl")
        if not os.access(kwokctl, os.X_OK):
            raise SandboxError(f"{kwokctl} is missing; run `gpufleet sandbox up` to have it again")
        # KWOK_* settings of the user's own clusters would change this one, and kubectl has a cache under HOME.
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
        """Whether every process that kwokctl wrote down is alive."""
        alive = self.pids()
        texts = [file.read_text() for file in (self._cluster / "pids").glob("*.pid")]
        return all(int(text) in alive for text in texts if text)

    def _why_not(self) -> str:
        """One line: the process that ended, or kwokctl, and the last thing it said."""
        alive = set(self.pids().values())
        logs = [self.directory / "kwokctl.log"]
        logs += [self.logs / f"{name}.log" for name in reversed(list(_COMPONENTS)) if name not in alive]
        for log in reversed([log for log in logs if log.exists()]):
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return f"the control plane does not start: {log.stem} says: {_said(lines[-1])} (log: {log})"
        return f"the control plane does not start, and no log says why (logs: {self.logs})"

    def _configuration(self, ports: dict[str, int]) -> str:
        """What kwokctl is given: its options, and the stages that kwok plays. JSON is YAML, and importing a
        YAML library would cost a tenth of what finding everything running costs."""
        options: dict[str, str | int | bool] = {
            "runtime": "binary",
            # By default everything listens on every interface, etcd without any authentication.
            "bindAddress": LOOPBACK,
            # Client-side limits of the controllers make 400 pods take 22 seconds instead of 7.
            "disableQPSLimits": True,
            "quietPull": True,
            **ports,
        }
        # Without these, kwokctl would download them.
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


def _said(line: str) -> str:
    """What a line of a log says: kwokctl and etcd write JSON, the others plain text."""
    try:
        entry = json.loads(line)
        return ": ".join(str(entry[key]) for key in ("msg", "err", "error") if key in entry) or line
    except (ValueError, TypeError):
        return line.strip()


def free_ports(count: int) -> list[int]:
    """Ports nothing listens on, at random: kwokctl's own choice counts down from 32767, so that two clusters
    made at the same time, which do not see each other, would choose the same ones."""
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise SandboxError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop - 1}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the servers do it: a port whose last connections are still being forgotten counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
