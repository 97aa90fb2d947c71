"""Where ARC's programs are looked for, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet_tools.sandbox.arc import programs
from gpufleet_tools.sandbox.errors import SandboxError

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


def test_what_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{folder / 'manager'} does not exist" in refused()
    place(folder, LINKED % b"0.14.2", 0o644)
    assert "chmod +x" in refused()
    monkeypatch.delenv(programs.ARC)
    assert "GPUFLEET_ARC is not set" in refused()
