"""NVIDIA container toolkit on hosts, pinned at one version, as nvkind and legacy runtimes require."""

from __future__ import annotations

import datetime
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi

from gpufleet.bare_metal.host_script import install_on_hosts
from gpufleet.bare_metal.ssh import SshHost, SshLogin, ssh_problems
from gpufleet.problem import Problem, refuse

NVIDIA_CONTAINER_TOOLKIT_REPOSITORY = "https://nvidia.github.io/libnvidia-container/stable/deb"
NVIDIA_CONTAINER_TOOLKIT_KEY = "https://nvidia.github.io/libnvidia-container/gpgkey"
NVIDIA_CONTAINER_TOOLKIT_VERSION = "1.17.8-1"
"""Last version that provides GPUs without CDI by default, and includes the fix of CVE-2025-23266."""

TOOLKIT_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
"""Packages of a toolkit version. At 1.17.8, `nvidia-container-toolkit` accepts any newer `libnvidia-container-tools`
(packaging/debian/control of NVIDIA/nvidia-container-toolkit). So each package must be named, pinned and held."""

VOLUME_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
"""Toolkit setting by which nvkind assigns GPUs to a node."""

JIT_CDI_SINCE = (1, 18, 0)
"""First version whose default runtime mode is `jit-cdi` (container-toolkit/release-notes.md of
NVIDIA/cloud-native-docs)."""

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")

URL = r"https?://[^\s\"'#\[\]]+"
"""Pattern of a package repository's URL, restricted to what APT's source lists can contain."""
SHA256 = r"[0-9a-f]{64}"
"""Pattern of a SHA-256, as printed by sha256sum."""
PACKAGE_VERSION = r"[0-9]+\.[0-9]+\.[0-9]+-[0-9]+"
"""Pattern of a package version with its revision."""

Engine = Literal["docker", "containerd"]


@dataclass(frozen=True, kw_only=True)
class Advisory:
    """A published vulnerability of the toolkit."""

    identifier: str
    """CVE number."""
    fixed: tuple[int, int, int]
    """First fixed version."""
    bulletin: int
    """Number of NVIDIA's bulletin: https://nvidia.custhelp.com/app/answers/detail/a_id/<number>."""
    severity: Literal["critical", "high"] | None = None
    """Severity according to the sources; None if they give none."""


ADVISORIES_REVIEWED = datetime.date(2026, 11, 22)
"""Date of the last comparison of the list below with its sources."""

ADVISORIES: tuple[Advisory, ...] = (
    Advisory(identifier="CVE-2024-0132", fixed=(1, 16, 2), bulletin=5582),
    Advisory(identifier="CVE-2024-0133", fixed=(1, 16, 2), bulletin=5582),
    Advisory(identifier="CVE-2024-0134", fixed=(1, 17, 0), bulletin=5585),
    Advisory(identifier="CVE-2024-0135", fixed=(1, 17, 3), bulletin=5599),
    Advisory(identifier="CVE-2024-0136", fixed=(1, 17, 3), bulletin=5599),
    Advisory(identifier="CVE-2024-0137", fixed=(1, 17, 3), bulletin=5599),
    Advisory(identifier="CVE-2025-23359", fixed=(1, 17, 4), bulletin=5616),
    Advisory(identifier="CVE-2025-23266", fixed=(1, 17, 8), bulletin=5659, severity="critical"),
    Advisory(identifier="CVE-2025-23267", fixed=(1, 17, 8), bulletin=5659, severity="high"),
    Advisory(identifier="CVE-2026-24260", fixed=(1, 19, 1), bulletin=5850, severity="high"),
)
"""Sources: gpu-operator/security.rst and gpu-operator/release-notes.rst (25.3.2) of NVIDIA/cloud-native-docs.
CVE-2026-24260 is in neither: its bulletin is that of June 2026; its fixed version comes from third parties that read
NVIDIA's machine-readable advisories (CSAF); its rating is NVD's (8.5). The bulletins themselves have not been read.
1.17.9 hardens 1.17.8 further, without a CVE number."""


@dataclass(frozen=True, kw_only=True)
class NvidiaContainerToolkitArgs:
    """Arguments of `NvidiaContainerToolkit`. `nvkind` has no default: if it were wrongly False, nvkind's clusters would
    have no GPUs."""

    hosts: Sequence[SshHost]
    """Hosts to install the toolkit on, all alike: Debian or Ubuntu, with the NVIDIA driver and the container engine."""
    login: SshLogin
    """SSH login for the hosts: root, or a user with passwordless sudo."""
    nvkind: bool
    """Whether nvkind creates clusters on these hosts. It passes GPUs to the legacy runtime by volume mounts, not by CDI
    (NVIDIA/nvkind#20)."""
    version: str = NVIDIA_CONTAINER_TOOLKIT_VERSION
    """Version of all four packages, including the package revision: `1.17.8-1`."""
    engine: Engine | None = "docker"
    """Container engine that gets the toolkit as its default runtime. A change restarts the engine. Containers of
    containerd continue then; those of Docker would end, so a host with running ones is refused. None if another tool
    configures it: kubespray rewrites containerd's configuration in every run, so configure the runtime there."""
    cdi: bool = False
    """Whether to enable CDI devices in the engine as well."""
    repository: str = NVIDIA_CONTAINER_TOOLKIT_REPOSITORY
    """URL of the package repository or its mirror, without the architecture."""
    key_url: str = NVIDIA_CONTAINER_TOOLKIT_KEY
    """URL of the repository's public signing key, ASCII-armoured."""
    key_sha256: str = ""
    """SHA-256 of the key file, 64 hexadecimal digits. If empty, the key that a host downloads first is trusted."""
    checked: str = ""
    """Any text, such as a date. When it changes, Pulumi verifies every host, and repairs those that have drifted.
    Pulumi itself only sees changed inputs, not changes on hosts."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before the toolkit, such as the driver."""


class NvidiaContainerToolkit(pulumi.ComponentResource):
    """The toolkit on every host: packages installed, pinned and held, runtime configured, and everything verified.

    The hosts are changed one after the other. A run without differences changes and restarts nothing. A removed host
    keeps its packages and runtime, but loses pin, hold and repository. Remove a permanently unreachable host from the
    state (`pulumi state delete`).

    It is not for EKS: the AMIs include a toolkit, and Karpenter's nodes have no SSH. If a GPU operator is used too, it
    must not install another toolkit: set `host_toolkit_pinned=True`.
    """

    ready: pulumi.Resource
    """The toolkit on every host; depend on it to wait until containers get GPUs."""
    verification: str
    """Shell script that prints one line per deviation of a host, and changes nothing. Run it as root with the argument
    `verify`: `sh -s verify`."""

    def __init__(self, name: str, args: NvidiaContainerToolkitArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, toolkit_problems(args))
        super().__init__("gpu-runners:index:NvidiaContainerToolkit", name, None, opts)
        script = toolkit_script(args)
        self.verification = script
        stdin = script + checked_comment(args.checked)
        install_on_hosts(name, args.hosts, args.login, stdin, self, args.needs, one_by_one=True)
        self.ready = self
        self.register_outputs({"version": args.version})


def checked_comment(checked: str) -> str:
    """Return a comment that makes a script differ when the text of `checked` differs, so that it runs again."""
    return f"# checked: {checked}\n" if checked else ""


def toolkit_problems(args: NvidiaContainerToolkitArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    if not args.hosts:
        yield Problem(("hosts",), "no-hosts", "is empty; at least one host is required")
    yield from ssh_problems(args.hosts, args.login)
    yield from version_problems(args)
    if args.nvkind and args.cdi:
        message = "nvkind does not use CDI, and fails if it is enabled (NVIDIA/nvkind#20); remove it"
        yield Problem(("cdi",), "cdi-with-nvkind", message)
    if args.nvkind and args.engine != "docker":
        message = f"nvkind runs its nodes in Docker, not {args.engine}; use docker"
        yield Problem(("engine",), "engine-of-nvkind", message)
    if args.cdi and args.engine is None:
        message = "requires an engine; set engine, or remove cdi"
        yield Problem(("cdi",), "cdi-without-engine", message)
    yield from _source_problems(args)
    if "\n" in args.checked:
        yield Problem(("checked",), "checked", "has several lines; write one line")


def _source_problems(args: NvidiaContainerToolkitArgs) -> Iterator[Problem]:
    for argument, url in (("repository", args.repository), ("key_url", args.key_url)):
        if not re.fullmatch(URL, url):
            yield Problem((argument,), "url", f"{url!r} is not a URL; it must begin with https:// or http://")
    if args.key_sha256 and not re.fullmatch(SHA256, args.key_sha256):
        message = "is not a SHA-256; write the 64 lower-case hexadecimal digits that sha256sum prints"
        yield Problem(("key_sha256",), "key-sum", message)
    if args.key_url.startswith("http://") and not args.key_sha256:
        message = "is required unless key_url is https://, because others on the network could replace the key"
        yield Problem(("key_sha256",), "key-sum-missing", message)


def version_problems(args: NvidiaContainerToolkitArgs) -> Iterator[Problem]:
    """Yield problems of the toolkit's version."""
    where = ("version",)
    if not re.fullmatch(PACKAGE_VERSION, args.version):
        message = f"{args.version!r} is not a package version such as {NVIDIA_CONTAINER_TOOLKIT_VERSION}"
        yield Problem(where, "package-version", message)
    elif args.nvkind and upstream(args.version) >= JIT_CDI_SINCE:
        message = (
            f"{args.version} uses jit-cdi by default, as does every version from 1.18.0, but nvkind requires the"
            f" legacy runtime; use {NVIDIA_CONTAINER_TOOLKIT_VERSION}"
        )
        yield Problem(where, "too-new-for-nvkind", message)
    else:
        for advisory in advisories_of(args.version):
            if advisory.severity == "critical":
                message = (
                    f"{args.version} has {advisory.identifier}, which is critical; use"
                    f" {NVIDIA_CONTAINER_TOOLKIT_VERSION} or newer"
                )
                yield Problem(where, "critical-advisory", message)


def upstream(version: str) -> tuple[int, int, int]:
    """Return the version of the toolkit without the package revision."""
    major, minor, patch = (int(part) for part in version.partition("-")[0].split("."))
    return major, minor, patch


def advisories_of(version: str) -> list[Advisory]:
    """Return the published vulnerabilities of a package version."""
    return [advisory for advisory in ADVISORIES if upstream(version) < advisory.fixed]


def toolkit_script(args: NvidiaContainerToolkitArgs) -> str:
    """Return the script for each host: the file beside this one, preceded by its values."""
    values = {
        "version": args.version,
        "engine": args.engine or "",
        "legacy": "yes" if args.nvkind else "",
        "cdi_flag": "--cdi.enabled" if args.cdi else "",
        "volume_mounts": VOLUME_MOUNTS,
        "repository": args.repository,
        "key_url": args.key_url,
        "key_sha256": args.key_sha256,
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()) + SCRIPT.read_text()
