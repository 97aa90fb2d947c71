"""Lines of requirements.txt that fix gpufleet's version, and lines that do not."""

from __future__ import annotations

import pathlib

import pytest

from gpufleet_tools.diff import pinned_version

WHEEL = "gpufleet-1.2.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("text", "version", "wheel"),
    [
        ("gpufleet==1.2.0\n", "1.2.0", None),
        ("GPUfleet[sandbox] == 1.2.0  # ours\n", "1.2.0", None),
        ("pulumi==3.1.0\ngpufleet==1.2.0 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n", "1.2.0", None),
        ("gpufleet==1.2.0; python_version >= '3.11'\n", "1.2.0", None),
        (f"gpufleet @ https://example.test/{WHEEL}#sha256=abc\n", "1.2.0", f"https://example.test/{WHEEL}#sha256=abc"),
        (f"https://example.test/{WHEEL}\n", "1.2.0", f"https://example.test/{WHEEL}"),
        (f"./wheels/{WHEEL}[sandbox]\n", "1.2.0", f"./wheels/{WHEEL}"),
    ],
)
def test_a_line_that_fixes_the_version(text: str, version: str, wheel: str | None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    found = pinned_version.pin(tmp_path)
    assert found is not None
    assert (found.version, found.wheel) == (version, wheel)
    assert len(found.lines) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# gpufleet==1.2.0\n",
        "gpufleet>=1.2.0\n",
        "gpufleet==1.*\n",
        "gpufleet-extras==1.2.0\n",
        "gpufleet @ git+https://example.test/gpufleet@main\n",
        "-e ../gpufleet\n",
        "./wheels/pulumi-3.1.0-py3-none-any.whl\n",
    ],
)
def test_a_line_that_fixes_none(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    assert pinned_version.pin(tmp_path) is None


def test_a_project_without_requirements(tmp_path: pathlib.Path) -> None:
    assert pinned_version.pin(tmp_path) is None


def test_where_packages_come_from_is_kept(tmp_path: pathlib.Path) -> None:
    index = "--extra-index-url https://packages.example.test/simple"
    (tmp_path / "requirements.txt").write_text(f"{index}\n--pre\npulumi==3.1.0\ngpufleet==1.2.0 --hash=sha256:abc\n")
    found = pinned_version.pin(tmp_path)
    assert found is not None
    assert found.lines == (index, "gpufleet==1.2.0 --hash=sha256:abc")


def test_a_wheel_of_the_project_with_other_content_is_another_pin(tmp_path: pathlib.Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"./{WHEEL}\n")
    pins = []
    for content in (b"one", b"two"):
        (tmp_path / WHEEL).write_bytes(content)
        found = pinned_version.pin(tmp_path)
        assert found is not None
        pins.append(found.identity)
    assert pins[0] != pins[1]
