"""NVIDIA's container toolkit on hosts, at one version that stays: what nvkind and legacy runtimes need."""

from __future__ import annotations

import datetime
import pathlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
from pulumi_command.remote import Command

from components.ssh import SshHost, SshLogin, connection, ssh_refusals, user_of

NVIDIA_CONTAINER_TOOLKIT_REPOSITORY = "https://nvidia.github.io/libnvidia-container/stable/deb"
NVIDIA_CONTAINER_TOOLKIT_KEY = "https://nvidia.github.io/libnvidia-container/gpgkey"
NVIDIA_CONTAINER_TOOLKIT_VERSION = "1.17.8-1"
"""The last that hands out GPUs without CDI by itself, and that has the fix of CVE-2025-23266."""

TOOLKIT_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
"""All that a version is of. At 1.17.8 `nvidia-container-toolkit` takes any newer `libnvidia-container-tools`
(packaging/debian/control of NVIDIA/nvidia-container-toolkit), so each has to be named, pinned and held."""

VOLUME_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
"""Setting of the toolkit by which nvkind tells a node its GPUs."""

JIT_CDI_SINCE = (1, 18, 0)
"""First version whose default runtime mode is `jit-cdi` (container-toolkit/release-notes.md of
NVIDIA/cloud-native-docs)."""

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")

Engine = Literal["docker", "containerd"]


@dataclass(frozen=True, kw_only=True)
class Advisory:
    """A published weakness of the toolkit."""

    identifier: str
    """Its CVE number."""
    fixed: tuple[int, int, int]
    """First version without it."""
    bulletin: int
    """Number of NVIDIA's bulletin: https://nvidia.custhelp.com/app/answers/detail/a_id/<number>."""
    severity: Literal["critical", "high"] | None = None
    """As the sources rate it; None where they do not."""


ADVISORIES_REVIEWED = datetime.date(2026, 11, 22)
"""When the list below was last compared with its sources."""

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
"""gpu-operator/security.rst and gpu-operator/release-notes.rst (25.3.2) of NVIDIA/cloud-native-docs. CVE-2026-24260 is
in neither: its bulletin is that of June 2026, its first fixed version is what others have taken from NVIDIA's machine
readable advisories (CSAF), and its rating is NVD's (8.5). The bulletins themselves have not been read. 1.17.9 hardens
1.17.8 further, under no number."""


@dataclass(frozen=True, kw_only=True)
class NvidiaContainerToolkitArgs:
    """What the toolkit needs to know. Whether nvkind is used has no default: taken for granted wrongly, its clusters
    have no GPUs."""

    hosts: Sequence[SshHost]
    """Hosts that get it, all alike: Debian or Ubuntu, with NVIDIA's driver and the container engine."""
    login: SshLogin
    """Who logs in to them: root, or a user with sudo without a password."""
    nvkind: bool
    """nvkind makes clusters on these hosts. It hands GPUs over by volume mounts to the legacy runtime, not by CDI
    (NVIDIA/nvkind#20)."""
    version: str = NVIDIA_CONTAINER_TOOLKIT_VERSION
    """Version of all four packages, with the package's revision: `1.17.8-1`."""
    engine: Engine | None = "docker"
    """Engine whose default runtime the toolkit becomes; it is restarted when that changes, which ends its containers.
    None where something else configures it: kubespray writes containerd's configuration anew at each run, so give it
    the runtime there."""
    cdi: bool = False
    """Have the engine take devices by CDI as well."""
    repository: str = NVIDIA_CONTAINER_TOOLKIT_REPOSITORY
    """URL of the package repository or its mirror, without the architecture."""
    key_url: str = NVIDIA_CONTAINER_TOOLKIT_KEY
    """URL of the public key, in ASCII armour, that it is signed with."""
    key_sha256: str = ""
    """SHA-256 of that file, 64 hexadecimal digits. Empty trusts whatever the URL gives when a host first asks."""
    checked: str = ""
    """Any text, such as a date. Pulumi runs a command again only where its inputs change, and does not see what
    happens on a host: a new text here has every host verified, and repaired where it has drifted."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before, such as the driver."""


class NvidiaContainerToolkit(pulumi.ComponentResource):
    """The toolkit on every host: packages installed, pinned and held, runtime configured, all of it verified.

    A run that finds nothing to do changes nothing and restarts nothing. A removed host keeps packages and runtime, and
    loses pin, hold and repository; one that cannot be reached any more has to be taken out of the state
    (`pulumi state delete`).

    It cannot be used for EKS: its machine images bring a toolkit of their own, and nodes that Karpenter starts have no
    SSH. A GPU operator beside it must not install another: `host_toolkit_pinned=True`.
    """

    ready: list[pulumi.Resource]
    """One command per host: depend on them for "containers get GPUs"."""
    verification: str
    """A shell script that says where a host deviates from all this, one line each, and changes nothing. To be run as
    root, with `verify` as its argument: `sh -s verify`."""

    def __init__(self, name: str, args: NvidiaContainerToolkitArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        if reasons := toolkit_refusals(args):
            raise ValueError(f"{name}: " + "; ".join(reasons))
        super().__init__("gpu-runners:index:NvidiaContainerToolkit", name, None, opts)
        script = toolkit_script(args)
        self.verification = script
        self.ready = [
            Command(
                f"{name}-{host.name}",
                connection=connection(host, args.login),
                create=f"{root_shell(user_of(host, args.login))} install",
                update=f"{root_shell(user_of(host, args.login))} install",
                delete=f"{root_shell(user_of(host, args.login))} remove",
                # As standard input, not as the command: pulumi-command quotes the whole command in every error.
                stdin=script + checked_comment(args.checked),
                # A stock sshd refuses these variables, and each refusal is a warning.
                add_previous_output_in_env=False,
                # Nothing here causes a replacement; where one is forced, `remove` must not come last.
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.needs], delete_before_replace=True),
            )
            for host in args.hosts
        ]
        self.register_outputs({"version": args.version})


def root_shell(user: str) -> str:
    """Command by which a user has a script from standard input run as root. sudo says in one line that it would ask."""
    return "sh -s" if user == "root" else "sudo -n sh -s"


def checked_comment(checked: str) -> str:
    """Last line of a script that is to run again when the text is another."""
    return f"# checked: {checked}\n" if checked else ""


def toolkit_refusals(args: NvidiaContainerToolkitArgs) -> list[str]:
    """Every reason why the toolkit cannot be like this."""
    reasons = [] if args.hosts else ["hosts: none; name at least one"]
    reasons += ssh_refusals(args.hosts, args.login)
    reasons += version_refusals(args)
    if args.nvkind and args.cdi:
        reasons.append("cdi: nvkind does not use it, and fails where it is on (NVIDIA/nvkind#20); leave it out")
    if args.nvkind and args.engine != "docker":
        reasons.append(f"engine: nvkind runs its nodes in Docker, not {args.engine}; use docker")
    if args.cdi and args.engine is None:
        reasons.append("cdi: there is no engine to take devices by CDI; name one, or leave cdi out")
    for field in ("repository", "key_url"):
        value = getattr(args, field)
        if not re.fullmatch(r"https?://[^\s\"'#\[\]]+", value):
            reasons.append(f"{field}: {value!r} is not a URL that begins with https:// or http://")
    if args.key_sha256 and not re.fullmatch(r"[0-9a-f]{64}", args.key_sha256):
        reasons.append("key_sha256: has to be 64 lower-case hexadecimal digits; sha256sum prints them")
    if args.key_url.startswith("http://") and not args.key_sha256:
        reasons.append("key_sha256: has to be given where key_url is not https://, or anyone on the way gives the key")
    if "\n" in args.checked:
        reasons.append("checked: has to be one line")
    return reasons


def version_refusals(args: NvidiaContainerToolkitArgs) -> list[str]:
    """Why the toolkit cannot be of that version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+-\d+", args.version):
        return [f"version: {args.version!r} is not a package version such as {NVIDIA_CONTAINER_TOOLKIT_VERSION}"]
    if args.nvkind and upstream(args.version) >= JIT_CDI_SINCE:
        return [
            f"version: {args.version} hands GPUs out by jit-cdi unless told otherwise, as every version from 1.18.0;"
            f" nvkind needs the legacy runtime. Use {NVIDIA_CONTAINER_TOOLKIT_VERSION}"
        ]
    return [
        f"version: {args.version} has {advisory.identifier}, which is critical;"
        f" use {NVIDIA_CONTAINER_TOOLKIT_VERSION} or newer"
        for advisory in advisories_of(args.version)
        if advisory.severity == "critical"
    ]


def upstream(version: str) -> tuple[int, int, int]:
    """Version of the toolkit, without the package's revision."""
    major, minor, patch = (int(part) for part in version.partition("-")[0].split("."))
    return major, minor, patch


def advisories_of(version: str) -> list[Advisory]:
    """Published weaknesses that a package version has."""
    return [advisory for advisory in ADVISORIES if upstream(version) < advisory.fixed]


def toolkit_script(args: NvidiaContainerToolkitArgs) -> str:
    """The script that each host runs: the file beside this one, with its values set first."""
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
