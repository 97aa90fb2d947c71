"""ARC's programs from folders and images, and messages about those that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.arc.controller import ARC_VERSION
from gpufleet_tools.sandbox.arc import programs
from gpufleet_tools.sandbox.errors import SandboxError
from tests.tools.runner_images.servers import Reply, Server, layer, serving

LINKED = b'build -ldflags="-X github.com/actions/actions-runner-controller/build.Version=%s"'


def place(folder: Path, content: bytes, mode: int = 0o755) -> None:
    folder.mkdir(exist_ok=True)
    for name in programs.PROGRAMS:
        (folder / name).write_bytes(content)
        (folder / name).chmod(mode)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(programs.ARC, str(tmp_path))
    return tmp_path


def refused(version: str = "0.14.2") -> str:
    with pytest.raises(SandboxError) as error:
        programs.find(version)
    assert len(error.value.lines) == 1
    return error.value.lines[0]


def test_a_folder_of_the_version_comes_first(folder: Path) -> None:
    place(folder, LINKED % b"0.13.1")
    place(folder / "0.14.2", LINKED % b"0.14.2")
    assert programs.find("0.14.2") == folder / "0.14.2"
    assert programs.find("0.13.1") == folder


def test_a_build_that_does_not_record_its_flags_is_known_by_its_constants(folder: Path) -> None:
    place(folder, b"\x000.14.2\x00")
    assert programs.find("0.14.2") == folder


def test_another_version_is_refused(folder: Path) -> None:
    place(folder, LINKED % b"0.13.1")
    assert "manager has version 0.13.1, but the stack has ARC 0.14.2" in refused()


def test_what_is_missing_is_named(folder: Path) -> None:
    assert f"{folder / 'manager'} does not exist" in refused()
    place(folder, LINKED % b"0.14.2", 0o644)
    assert "chmod +x" in refused()


# -- images -----------------------------------------------------------------------------------------------------------

NAME = "mirror/gha-runner-scale-set-controller"
BASE = layer({"etc/os-release": "ID=distroless"})


def programs_layer(version: str) -> bytes:
    return layer(dict.fromkeys(programs.PROGRAMS, (LINKED % version.encode()).decode()))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A registry whose image is used, since no folder is given."""
    monkeypatch.delenv(programs.ARC)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(programs.platform, "machine", lambda: "x86_64")
    with serving() as server:
        monkeypatch.setenv(programs.ARC_IMAGE, f"{server.host}/{NAME}")
        yield server


def left(tmp_path: Path) -> list[str]:
    """Files of the cache, without the finished folders."""
    return [each.name for each in (tmp_path / "cache/gpufleet/arc").iterdir()]


def test_the_programs_are_read_from_the_image_once(
    registry: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = registry.image(NAME, "0.14.2", BASE, programs_layer("0.14.2"), layer({"licence": ""}))
    folder = programs.find("0.14.2")
    assert capsys.readouterr().err.splitlines() == [
        f"reading ARC's programs from {registry.host}/{NAME}:0.14.2",
        f"ARC's programs are in {folder} (digest of the image: {digest})",
    ]
    assert sorted(each.name for each in folder.iterdir()) == sorted(programs.PROGRAMS)
    assert all(each.stat().st_mode & 0o111 for each in folder.iterdir())
    assert len([path for path, _ in registry.asked if "/blobs/" in path]) == 2, "not the layer below the programs"
    asked = len(registry.asked)
    assert programs.find("0.14.2") == folder
    assert (len(registry.asked), capsys.readouterr().err) == (asked, "")
    assert left(tmp_path) == [folder.name]


def test_the_official_image_is_known_by_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    official = "ghcr.io/actions/gha-runner-scale-set-controller"
    assert programs.image(ARC_VERSION).startswith(f"{official}:{ARC_VERSION}@sha256:"), (
        "of the version that is installed"
    )
    assert programs.image("0.13.1") == f"{official}:0.13.1"
    for given, used in (("mirror:5000/arc", "mirror:5000/arc:0.14.2"), ("mirror/arc:edge", "mirror/arc:edge")):
        monkeypatch.setenv(programs.ARC_IMAGE, given)
        assert programs.image("0.14.2") == used


def test_an_image_by_digest_is_verified(registry: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = registry.image(NAME, "0.14.2", programs_layer("0.14.2"))
    monkeypatch.setenv(programs.ARC_IMAGE, f"{registry.host}/{NAME}@{digest}")
    assert programs.find("0.14.2").is_dir()
    other = f"sha256:{'0' * 64}"
    registry.replies[f"/v2/{NAME}/manifests/{other}"] = Reply(registry.replies[f"/v2/{NAME}/manifests/{digest}"].body)
    monkeypatch.setenv(programs.ARC_IMAGE, f"{registry.host}/{NAME}@{other}")
    assert f"the content has the digest {digest} instead of {other}; set GPUFLEET_ARC_IMAGE" in refused()


def test_a_layer_that_differs_is_refused(registry: Server, tmp_path: Path) -> None:
    registry.image(NAME, "0.14.2", programs_layer("0.14.2"))
    (blob,) = (path for path in registry.replies if "/blobs/" in path)
    registry.replies[blob] = Reply(programs_layer("0.14.2") + b"\0")
    assert "has the digest sha256:" in refused()
    assert left(tmp_path) == []


def test_an_image_of_another_version_is_refused(registry: Server, tmp_path: Path) -> None:
    registry.image(NAME, "0.14.2", programs_layer("0.13.1"))
    assert refused() == (
        f"--arc real: manager in {registry.host}/{NAME}:0.14.2 has version 0.13.1, but the stack has ARC 0.14.2;"
        " set GPUFLEET_ARC_IMAGE to an image of that version"
    )
    assert left(tmp_path) == []


def test_an_image_without_the_programs_is_refused(registry: Server) -> None:
    registry.image(NAME, "0.14.2", BASE)
    assert f"{registry.host}/{NAME}:0.14.2: has no /ghalistener and /manager; set GPUFLEET_ARC_IMAGE" in refused()


def test_a_registry_that_fails_is_one_line(registry: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    instead = (
        "; set GPUFLEET_ARC_IMAGE to a copy of the image, or GPUFLEET_ARC to a folder with manager and ghalistener"
    )
    assert f"has no such image: {registry.url}" in (line := refused())
    assert line.endswith(f"{instead} of ARC 0.14.2")
    registry.token = "of somebody"
    registry.replies["/token?service=here&scope=repository%3Amirror%2Fgha-runner-scale-set-controller%3Apull"] = Reply(
        b"{}", 403
    )
    assert f"requires credentials{instead}" in refused()
    monkeypatch.setattr(programs, "_SECONDS", 0.2)
    registry.token = None
    registry.replies[f"/v2/{NAME}/manifests/0.14.2"] = Reply(b"{}", pause=2)
    assert f"no response in time{instead}" in refused(), "without an option that `sandbox up` has not"
    monkeypatch.setenv(programs.ARC_IMAGE, "127.0.0.1:1/arc")
    assert "http://127.0.0.1:1/v2/arc/manifests/0.14.2: cannot be reached: " in refused()
    assert left(tmp_path) == []
