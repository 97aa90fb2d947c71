"""Programs of the sandbox's control plane.

By default the official releases are downloaded, which takes a minute. If that fails, the programs are built. The Go
toolchain comes from the same package index as all dependencies, so that Python is the only prerequisite. The third
source is a directory of the user.
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
    # kwokctl checks the API server with `kubectl get --raw`, and downloads kubectl if it has none.
    Binary("kubectl", "k8s.io/kubernetes/cmd/kubectl", 17),
)
"""Programs that `gpufleet sandbox up` requires. Seconds: measured, see Binary; 305 in total."""

# Output of `kubectl version` and GET /version of the official v1.36.1. A build without these has the version
# "v0.0.0-master+$Format", which kubectl cannot parse and which has no minor version for Helm.
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
"""Recipe of BINARIES: the pinned module in modules/kubernetes/, and the version stamps of the official release."""


RELEASES = releases.listed(RECIPE.module / "releases.sha256")
"""Official releases of the same versions, for this machine; none for an architecture without releases."""


@dataclass(frozen=True)
class Binaries:
    """Directory with the programs."""

    directory: Path

    def path(self, name: str) -> Path:
        """Return the file of the program `name` in BINARIES."""
        return self.directory / name


def find(source: str | None = None, console: Console | None = None) -> Binaries:
    """Return the binaries from `source`. None downloads missing ones, or builds them if the download fails; "download"
    and "build" do only that; any other text is a directory that has all binaries.

    Progress is printed on `console`, by default standard error. Raises SandboxError.
    """
    if source not in (None, "build", "download"):
        return Binaries(given(Path(source), RECIPE))
    root = build_directory(RECIPE)
    if source == "download" and not RELEASES:
        raise SandboxError(f"no official binaries for {platform.machine()}; omit --binaries to build them")
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
    """Return the directory that `find` uses, whether it exists or not, for commands that start no control plane."""
    return Binaries(build_directory(RECIPE) / "bin")
