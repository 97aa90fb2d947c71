"""Download of official releases of the control plane into the directory of a build, verified by checksum."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import os
import platform
import queue
import re
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from gpufleet_tools.sandbox.build.progress import Transfer, transfers
from gpufleet_tools.sandbox.control_plane import processes

ANSWER_SECONDS = 5.0
"""Time limit in seconds for a server's response and for each following part of it."""

_CHUNK = 1 << 18

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architectures in the names of releases, by the machine type of Linux."""


class DownloadError(Exception):
    """A release could not be downloaded. `str()` is one line."""


@dataclass(frozen=True)
class Release:
    """A released file: a program, or an archive that contains one."""

    program: str
    url: str
    sha256: str

    @property
    def is_archive(self) -> bool:
        return self.url.endswith(".tar.gz")


def listed(checksums: Path, machine: str | None = None) -> tuple[Release, ...]:
    """Return the releases for `machine`, by default this one, from a file in the format of sha256sum."""
    architecture = ARCHITECTURES.get(machine or platform.machine())
    lines = [line.split() for line in checksums.read_text().splitlines() if line and not line.startswith("#")]
    return tuple(
        Release(_program(url), url, sha256) for sha256, url in lines if re.search(rf"linux[-/]{architecture}\b", url)
    )


def _program(url: str) -> str:
    """Return `etcd` for `…/etcd-v3.6.10-linux-amd64.tar.gz`, `kubectl` for `…/amd64/kubectl`."""
    return re.sub(r"(-v[\d.]+)?-linux-.*", "", url.rpartition("/")[2])


def download(releases: Sequence[Release], root: Path, console: Console | None = None) -> None:
    """Download those programs of `releases` that `root/bin` lacks, and make them executable.

    Complete programs are kept if a later download fails. A build in the same `root` and a download exclude each other.
    Raises DownloadError.
    """
    directory = root / "bin"
    if all((directory / release.program).exists() for release in releases):
        return
    console = console or Console(stderr=True)
    waiting = functools.partial(console.print, "another process is preparing the same programs; waiting for it")
    try:
        with processes.exclusive(root / "lock", waiting):
            missing = [release for release in releases if not (directory / release.program).exists()]
            directory.mkdir(parents=True, exist_ok=True)
            with transfers(console) as show:
                for release in missing:
                    _download_one(release, directory, show)
    except OSError as error:
        raise DownloadError(f"{root}: {error.strerror or error}") from error


def _download_one(release: Release, directory: Path, show: Transfer) -> None:
    received = directory / f".{release.program}.received"
    partial = directory / f".{release.program}.partial"
    try:
        digest = _receive(release, received, show)
        if digest != release.sha256:
            raise DownloadError(f"{release.url}: SHA-256 {digest} instead of {release.sha256}")
        if release.is_archive:
            _extract(release, received, partial)
        else:
            received.rename(partial)
        partial.chmod(0o755)
        partial.replace(directory / release.program)
    finally:
        received.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)


def _receive(release: Release, to: Path, show: Transfer) -> str:
    """Write the released file to `to` and return its SHA-256. Raises DownloadError if it is incomplete."""
    digest = hashlib.sha256()
    with contextlib.closing(_answer(release.url)) as answer, to.open("wb") as file:
        length = int(answer.headers.get("Content-Length", 0))
        show.begin(release.program, length)
        while chunk := _next(answer, release.url):
            digest.update(chunk)
            file.write(chunk)
            show.received(len(chunk))
        if file.tell() < length:
            raise DownloadError(f"{release.url}: ended after {file.tell()} of {length} bytes")
        # A power failure must not leave an incomplete file under the final name.
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _next(answer: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return answer.read(_CHUNK)
    except TimeoutError:
        raise DownloadError(f"{url}: no data for {ANSWER_SECONDS:g} seconds") from None
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: {error}") from None


def _answer(url: str) -> http.client.HTTPResponse:
    """Return the server's response if it begins within ANSWER_SECONDS. Raises DownloadError.

    urllib's timeout limits the connection to one address, but neither the name look-up nor the number of addresses. So
    the request runs in a thread.
    """
    answers: queue.SimpleQueue[http.client.HTTPResponse | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=ANSWER_SECONDS))
        except Exception as error:  # passed to the waiting thread
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_SECONDS)
    except queue.Empty:
        answer = TimeoutError()
    if isinstance(answer, http.client.HTTPResponse):
        return answer
    if isinstance(answer, urllib.error.HTTPError):
        answer.close()
        raise DownloadError(f"{url}: HTTP status {answer.code}")
    reason = answer.reason if isinstance(answer, urllib.error.URLError) else answer
    if isinstance(reason, TimeoutError):
        raise DownloadError(f"{url}: no response within {ANSWER_SECONDS:g} seconds")
    raise DownloadError(f"{url}: {reason.strerror if isinstance(reason, OSError) and reason.strerror else reason}")


def _extract(release: Release, archive: Path, to: Path) -> None:
    """Extract the program from its archive, whose checksum has been verified."""
    member = f"{release.url.rpartition('/')[2].removesuffix('.tar.gz')}/{release.program}"
    with tarfile.open(archive) as opened:
        source = opened.extractfile(member)
        assert source is not None
        with source, to.open("wb") as file:
            shutil.copyfileobj(source, file)
