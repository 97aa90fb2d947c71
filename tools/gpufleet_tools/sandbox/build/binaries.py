"""The programs of the sandbox's control plane.

The default is to download the official releases, which takes a minute. Where that does not work, they are built: a Go
toolchain comes from the same package index as everything else here, so a machine with Python and nothing else can do
it. The third source is a directory of the user's.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gpufleet_tools.sandbox.build import releases
from gpufleet_tools.sandbox.build.go_build import Binary, Recipe, build, build_directory, given
from gpufleet_tools.sandbox.errors import SandboxError

BINARIES: tuple[Binary, ...] = (
    Binary("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 199),
    Binary("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 52),
    Binary("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 4),
    Binary("etcd", "go.etcd.io/etcd/server/v3", 8),
    Binary("kwok", "sigs.k8s.io/kwok/cmd/kwok", 14),
    Binary("kwokctl", "sigs.k8s.io/kwok/cmd/kwokctl", 11),
    # kwokctl asks the API server whether it is up by running `kubectl get --raw`, and downloads one
    # otherwise.
    Binary("kubectl", "k8s.io/kubernetes/cmd/kubectl", 17),
)
"""What `gpufleet sandbox up` needs. Seconds: measured, see Binary; 305 in all."""

# What `kubectl version` and GET /version of the official v1.36.1 say. Without it they say
# "v0.0.0-master+$Format", which kubectl cannot parse and from which Helm reads no minor version.
_KUBERNETES_VERSION: Mapping[str, str] = {
    "gitVersion": "v1.36.1",
    "gitMajor": "1",
    "gitMinor": "36",
    "gitCommit": "756939600b9a7180fc2df6550a4585b638875e67",
    "gitTreeState": "clean",
    "buildDate": "2026-05-12T09:51:34Z",
}

RECIPE = Recipe(
    module=Path(__file__).parent / "modules/kubernetes",
    binaries=BINARIES,
    ldflags=" ".join(
        [
            "-s -w",
            *(
                f"-X {package}.{key}={value}"
                for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
                for key, value in _KUBERNETES_VERSION.items()
            ),
        ]
    ),
)
"""How BINARIES are built: the pinned module in modules/kubernetes/, the official release's version stamps."""


RELEASES = releases.listed(RECIPE.module / "releases.sha256")
"""Official releases of the same versions, for this machine; none for an architecture without releases."""


@dataclass(frozen=True)
class Binaries:
    """Where the programs are."""

    directory: Path

    def path(self, name: str) -> Path:
        """The file of the program called `name` in BINARIES."""
        return self.directory / name


def find(source: str | None = None, console: Console | None = None) -> Binaries:
    """The binaries from `source`: None downloads what is missing, or builds it if that does not work; "download" and
    "build" do only the one; anything else is a directory that holds them all.

    `console` is where progress goes, stderr by default. Raises SandboxError.
    """
    if source not in (None, "build", "download"):
        return Binaries(given(Path(source), RECIPE))
    root = build_directory(RECIPE)
    if source == "download" and not RELEASES:
        raise SandboxError(f"no official binaries for {platform.machine()}; leave --binaries out to build them")
    if source != "build":
        try:
            releases.download(RELEASES, root, console)
        except releases.DownloadError as error:
            if source == "download":
                raise SandboxError(f"the official binaries cannot be downloaded: {error}") from None
            console = console or Console(stderr=True)
            console.print(
                f"the official binaries cannot be downloaded ({error}); building them instead", soft_wrap=True
            )
    return Binaries(build(RECIPE, console))


def without_building() -> Binaries:
    """Where `find` leaves them, there or not: for what only looks at a control plane, or ends it."""
    return Binaries(build_directory(RECIPE) / "bin")
