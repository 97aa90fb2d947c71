"""The programs of the sandbox's control plane.

The default is to build them, because a Go toolchain comes from the same package index as everything else
here, so that a machine with Python and nothing else can do it. Two other sources exist: a directory of the
user's, and kwokctl downloading official releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gpufleet_tools.sandbox.build.go_build import Binary, Recipe, build, build_directory, cache_directory, given

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


@dataclass(frozen=True)
class Binaries:
    """Where the programs are. `directory` holds all of them, or only kwokctl when `downloads` is true:
    kwokctl then fetches official releases of the others itself, into `download_directory()`."""

    directory: Path
    downloads: bool = False

    def path(self, name: str) -> Path:
        """The file of the program called `name` in BINARIES."""
        return self.directory / name


def download_directory() -> Path:
    """Where kwokctl keeps what it downloads, shared by all clusters of this user."""
    return cache_directory() / "downloads"


def find(source: str | None = None, console: Console | None = None) -> Binaries:
    """The binaries from `source`: None or "build" builds what is missing, "download" builds kwokctl alone and
    leaves the rest to kwokctl, anything else is a directory that holds them all.

    `console` is where progress goes, stderr by default. Raises SandboxError.
    """
    if source is None or source == "build":
        return Binaries(build(RECIPE, console))
    if source == "download":
        return Binaries(build(RECIPE, console, only=("kwokctl",)), downloads=True)
    return Binaries(given(Path(source), RECIPE))


def without_building() -> Binaries:
    """Where the build leaves them, there or not: for what only looks at a control plane, or ends it."""
    return Binaries(build_directory(RECIPE) / "bin")
