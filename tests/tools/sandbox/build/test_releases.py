"""Downloads of official releases from a local server: good, wrong, cut off, stalled, unreachable."""

from __future__ import annotations

import hashlib
import http.server
import io
import re
import socket
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from gpufleet_tools.check import pins
from gpufleet_tools.sandbox.build import binaries, go_build, releases
from gpufleet_tools.sandbox.build.go_build import Recipe
from gpufleet_tools.sandbox.build.releases import DownloadError, Release
from gpufleet_tools.sandbox.errors import SandboxError

RELEASED = b"#!/bin/sh\necho released >&2\n" + b"# padding\n" * 10_000

Answer = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]


@dataclass
class Server:
    """A server of releases on loopback. What it does is set for each path."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the test ends: a server that stalls waits for it."""

    def release(self, program: str, path: str = "", content: bytes = RELEASED) -> Release:
        path = path or f"/v1/bin/linux/amd64/{program}"
        self.files[path] = content
        return Release(program, f"{self.url}{path}", hashlib.sha256(content).hexdigest())

    def whole(self, handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        self._head(handler, content)
        handler.wfile.write(content)

    def half(self, handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        self._head(handler, content)
        handler.wfile.write(content[: len(content) // 2])

    def half_and_stall(self, handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        self.half(handler, content)
        handler.wfile.flush()
        self.ended.wait(30)

    def stall(self, _handler: http.server.BaseHTTPRequestHandler, _content: bytes) -> None:
        self.ended.wait(30)

    def missing(self, handler: http.server.BaseHTTPRequestHandler, _content: bytes) -> None:
        handler.send_error(404)

    @staticmethod
    def _head(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            running.asked.append(self.path)
            running.answers.get(self.path, running.whole)(self, running.files[self.path])

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        running = Server(f"http://127.0.0.1:{listening.server_port}")
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield running
        running.ended.set()
        listening.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def archive(folder: str, program: str) -> bytes:
    """A .tar.gz with the program in a folder, and another file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name in (f"{folder}/README.md", f"{folder}/{program}"):
            entry = tarfile.TarInfo(name)
            entry.size = len(RELEASED)
            file.addfile(entry, io.BytesIO(RELEASED))
    return packed.getvalue()


def download(*wanted: Release, root: Path) -> str:
    """Download, and return what was printed."""
    printed = io.StringIO()
    releases.download(wanted, root, Console(file=printed, width=200))
    return printed.getvalue()


def printed_by(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stderr.strip()


def test_downloads_what_is_missing_once(server: Server, tmp_path: Path) -> None:
    packed = archive("tool-v3.6.10-linux-amd64", "tool")
    wanted = (server.release("hello"), server.release("tool", "/v3.6.10/tool-v3.6.10-linux-amd64.tar.gz", packed))
    assert download(*wanted, root=tmp_path).splitlines() == ["downloading hello, 0 MB", "downloading tool, 0 MB"]
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["hello", "tool"]
    assert {printed_by(path) for path in (tmp_path / "bin").iterdir()} == {"released"}
    assert download(*wanted, root=tmp_path) == ""
    assert len(server.asked) == 2


FAULTS = {
    "missing": r"/hello: HTTP status 404$",
    "half": r"/hello: ended after \d+ of 100028 bytes$",
    "half_and_stall": r"/hello: no data for 0.3 seconds$",
    "stall": r"/hello: no response within 0.3 seconds$",
}


@pytest.fixture(params=[*FAULTS, "wrong checksum", "unreachable"])
def faulty(request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch) -> tuple[Release, str]:
    """A release that cannot be had, and why, as a pattern."""
    monkeypatch.setattr(releases, "ANSWER_SECONDS", 0.3)
    release = server.release("hello")
    if request.param == "wrong checksum":
        return replace(release, sha256="0" * 64), rf"/hello: SHA-256 {release.sha256} instead of 0{{64}}$"
    if request.param == "unreachable":
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/hello"
        return replace(release, url=url), r"/hello: Connection refused$"
    server.answers["/v1/bin/linux/amd64/hello"] = getattr(server, request.param)
    return release, FAULTS[request.param]


def test_a_fault_is_one_line_and_leaves_nothing_but_what_arrived(
    faulty: tuple[Release, str], server: Server, tmp_path: Path
) -> None:
    release, reason = faulty
    with pytest.raises(DownloadError, match=reason) as caught:
        download(server.release("first"), release, server.release("last"), root=tmp_path)
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["first"]
    assert not any(path.endswith("last") for path in server.asked)


@pytest.fixture
def tiny(server: Server, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Path, str]]:
    """Finds the two tiny programs, from these releases or from Go."""

    def find(*available: Release, source: str | None = None) -> tuple[Path, str]:
        monkeypatch.setattr(binaries, "RECIPE", recipe)
        monkeypatch.setattr(binaries, "RELEASES", available)
        printed = io.StringIO()
        found = binaries.find(source, Console(file=printed, width=80))
        return found.directory, printed.getvalue()

    return find


Find = Callable[..., tuple[Path, str]]


def test_what_can_be_downloaded_is_not_built(server: Server, tiny: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_build, "go_program", lambda _module: pytest.fail("go was asked for"))
    directory, printed = tiny(server.release("hello"), server.release("there"))
    assert [printed_by(directory / name) for name in ("hello", "there")] == ["released", "released"]
    assert "building" not in printed


def test_what_cannot_be_downloaded_is_built(faulty: tuple[Release, str], server: Server, tiny: Find) -> None:
    release, reason = faulty
    directory, printed = tiny(server.release("there"), release)
    assert [printed_by(directory / name) for name in ("hello", "there")] == ["stamped", "released"]
    lines = printed.splitlines()
    (reported,) = (line for line in lines if line.startswith("the official binaries cannot be downloaded ("))
    assert re.search(reason, reported.partition("(")[2].removesuffix("); building them instead"))
    assert [line for line in lines if line.startswith("building")] == ["building hello, about 3 s left"]


def test_only_a_download(faulty: tuple[Release, str], tiny: Find) -> None:
    release, reason = faulty
    with pytest.raises(SandboxError, match=reason) as caught:
        tiny(release, source="download")
    assert str(caught.value).startswith("the official binaries cannot be downloaded: ")


def test_only_a_download_on_a_machine_without_releases(tiny: Find) -> None:
    with pytest.raises(SandboxError, match=r"no official binaries for \w+; omit --binaries"):
        tiny(source="download")


def test_only_a_build(server: Server, tiny: Find) -> None:
    directory, _ = tiny(server.release("hello"), server.release("there"), source="build")
    assert printed_by(directory / "hello") == "stamped"
    assert server.asked == []


CHECKSUMS = binaries.RECIPE.module / "releases.sha256"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_binary_has_a_release_of_the_version_that_is_pinned(machine: str) -> None:
    modules = pins.versions(binaries.RECIPE.module / "go.mod")
    versions = {
        "etcd": modules["go.etcd.io/etcd/server/v3"],
        "kwok": modules["sigs.k8s.io/kwok"],
        "kwokctl": modules["sigs.k8s.io/kwok"],
    }
    listed = releases.listed(CHECKSUMS, machine)
    assert sorted(release.program for release in listed) == sorted(binary.name for binary in binaries.BINARIES)
    for release in listed:
        version = versions.get(release.program, modules["k8s.io/kubernetes"])
        assert set(re.findall(r"v\d+\.\d+\.\d+", release.url)) == {version}
        assert release.url.startswith("https://")
        assert re.fullmatch(r"[0-9a-f]{64}", release.sha256)
    assert len({release.sha256 for release in listed}) == len(listed)


def test_a_machine_without_releases_has_none() -> None:
    assert releases.listed(CHECKSUMS, "riscv64") == ()
