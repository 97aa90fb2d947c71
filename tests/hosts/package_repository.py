"""A package repository of the container toolkit: signed, over HTTP, laid out as NVIDIA's is. Its packages are empty but
for stand-ins; what they depend on is what the real ones do."""

from __future__ import annotations

import contextlib
import email.utils
import functools
import hashlib
import http.server
import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from gpufleet.bare_metal.container_toolkit import TOOLKIT_PACKAGES

STAND_INS = pathlib.Path(__file__).parent / "stand_ins" / "packages"

REAL_CTK = "GPUFLEET_NVIDIA_CTK"
"""Variable that names a real `nvidia-ctk`, which the packages then have instead of the stand-in:
`go build github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk`."""

PROGRAMS = ("dpkg-deb", "dpkg-scanpackages", "gpg", "gpgconf")

ARCHITECTURE = "amd64"

CONTENTS = {
    "nvidia-container-toolkit": (),
    "nvidia-container-toolkit-base": ("nvidia-ctk",),
    "libnvidia-container-tools": ("nvidia-container-cli",),
    "libnvidia-container1": (),
}
"""Programs in each package (packaging/debian/*.install in NVIDIA/nvidia-container-toolkit)."""

RECORDED = """\
#!/bin/sh
echo "$*" >> /var/log/stand-ins/nvidia-ctk
exec /usr/lib/nvidia-ctk/nvidia-ctk "$@"
"""


def depends(package: str, version: str) -> str:
    """What a package depends on (packaging/debian/control in NVIDIA/nvidia-container-toolkit at v1.17.8 and v1.18.2,
    pkg/deb/control in NVIDIA/libnvidia-container). Up to 1.17 newer tools were good enough."""
    upstream = version.partition("-")[0]
    tools = "=" if tuple(int(part) for part in upstream.split(".")) >= (1, 18, 0) else ">="
    return {
        "nvidia-container-toolkit": (
            f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools ({tools} {version}),"
            " libnvidia-container-tools (<< 2.0.0)"
        ),
        "libnvidia-container-tools": f"libnvidia-container1 (>= {upstream})",
    }.get(package, "")


@dataclass(frozen=True)
class PackageRepository:
    """A repository that is being served."""

    url: str
    """Its URL, without the architecture."""
    key_url: str
    """URL of its public key."""
    key_sha256: str
    """SHA-256 of that."""
    requests: list[str]
    """Paths that have been asked for."""


def missing() -> list[str]:
    """What this machine lacks to make one."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def make(folder: pathlib.Path, versions: tuple[str, ...]) -> None:
    """Makes the files of a repository with all four packages at each version."""
    flat = folder / "stable" / "deb" / ARCHITECTURE
    flat.mkdir(parents=True)
    for version in versions:
        for package in TOOLKIT_PACKAGES:
            _build(folder / "build" / f"{package}-{version}", flat, package, version)
    packages = _run("dpkg-scanpackages", "--multiversion", ".", cwd=flat)
    (flat / "Packages").write_text(packages)
    digest, size = hashlib.sha256(packages.encode()).hexdigest(), len(packages.encode())
    release = f"Date: {email.utils.formatdate(usegmt=True)}\nSHA256:\n {digest} {size} Packages\n"
    _sign(folder, flat, release)


def _build(tree: pathlib.Path, flat: pathlib.Path, package: str, version: str) -> None:
    control = (
        f"Package: {package}\nVersion: {version}\nArchitecture: {ARCHITECTURE}\nMaintainer: Tests <tests@example>\n"
    )
    if needed := depends(package, version):
        control += f"Depends: {needed}\n"
    control += "Description: stands for the package of that name\n"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(control)
    facts = tree / "usr" / "share" / "stand-ins"
    facts.mkdir(parents=True)
    (facts / package).write_text(version.partition("-")[0] + "\n")
    for program in CONTENTS[package]:
        _install(tree, program)
    if package == "nvidia-container-toolkit-base":
        postinst = tree / "DEBIAN" / "postinst"
        postinst.write_text(
            '#!/bin/sh\nset -e\nif [ "$1" = configure ]; then nvidia-ctk --quiet config --in-place; fi\n'
        )
        postinst.chmod(0o755)
    _run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(flat))


def _install(tree: pathlib.Path, program: str) -> None:
    target = tree / "usr" / "bin" / program
    target.parent.mkdir(parents=True, exist_ok=True)
    real = os.environ.get(REAL_CTK) if program == "nvidia-ctk" else None
    if real:
        target.write_text(RECORDED)
        library = tree / "usr" / "lib" / "nvidia-ctk"
        library.mkdir(parents=True)
        shutil.copy(real, library / "nvidia-ctk")
    else:
        shutil.copy(STAND_INS / program, target)
    target.chmod(0o755)


def _sign(folder: pathlib.Path, flat: pathlib.Path, release: str) -> None:
    with _key(folder / "gnupg") as gpg:
        (flat / "InRelease").write_text(_run(*gpg, "--clearsign", stdin=release))
        (folder / "gpgkey").write_text(_run(*gpg, "--armor", "--export"))
    with _key(folder / "gnupg-stranger") as gpg:
        (folder / "strangers-key").write_text(_run(*gpg, "--armor", "--export"))


@contextlib.contextmanager
def _key(home: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """A signing key of its own, as the command `gpg` that has it."""
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet", "--no-tty")
    try:
        _run(*gpg, "--passphrase", "", "--quick-generate-key", "Tests <tests@example>", "ed25519", "sign", "1d")
        yield gpg
    finally:
        _run("gpgconf", "--homedir", str(home), "--kill", "all")


def _run(*command: str, stdin: str = "", cwd: pathlib.Path | None = None) -> str:
    done = subprocess.run(command, input=stdin, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def served(folder: pathlib.Path, address: str) -> Iterator[PackageRepository]:
    """Serves the files of a repository on that address."""
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            requests.append(self.path)

    server = http.server.ThreadingHTTPServer((address, 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        base = f"http://{address}:{server.server_port}"
        digest = hashlib.sha256((folder / "gpgkey").read_bytes()).hexdigest()
        yield PackageRepository(f"{base}/stable/deb", f"{base}/gpgkey", digest, requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
