"""The README's pictures: terminals drawn as SVG. `python -m tests.pictures [NAME]` records the sandbox's output again.

The recording is a text file in docs/pictures, made by the real command in a terminal of 100 columns. Drawing it needs
no process, so `make generate` draws it again and a test compares.
"""

from __future__ import annotations

import io
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text
from rich.theme import Theme

from tests.conftest import PYTHONPATH, ROOT

FOLDER = ROOT / "docs/pictures"

RECORDINGS: Mapping[str, Sequence[str]] = {
    "up-dev": ("sandbox up dev",),
    "arc-mi300": (
        "sandbox up mi300 --arc real --jobs linux-mi300-gpu-2=2 --jobs mi300-cluster=1",
        "sandbox jobs mi300 mi300-cluster=20 --seconds 3 --watch",
    ),
}
"""Commands of each recording, `NAME.txt`, which has their output with the terminal's escape sequences. The real ARC
requires its programs and charts, as docs/sandbox.md says."""

COMMENT = ROOT / "tests/golden/diff/raise-max-beyond-the-pool.md"
"""A comment of `gpufleet diff --format markdown`; a test keeps it current."""

COLUMNS = 100

_HEADINGS = Theme({"markdown.h3": "bold", "markdown.h4": "bold", "markdown.code": "bold cyan"})
"""Of the comment: GitHub shows headings in bold, rich in colours that hardly show."""

_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)

_DETAILS = re.compile(r"<details>.*?</details>\n?", re.DOTALL)


SANDBOX, ARC, PULL_REQUEST = FILES = tuple(FOLDER / f"{name}.svg" for name in ("up-dev", "arc-mi300", "pull-request"))
"""The pictures."""

_LAST_FRAME = re.compile(r".*(?:\r?\x1b\[2K|\x1b\[1A)", re.DOTALL)
"""What precedes the last of several drawings of one table."""

_CURSOR = re.compile(r"\x1b\[\?25[lh]")


def drawn(file: pathlib.Path) -> str:
    """Return a picture as SVG."""
    if file == PULL_REQUEST:
        return svg(comment(COMMENT.read_text()), "the comment on a pull request")
    recorded = file.with_suffix(".txt").read_text()
    if file == SANDBOX:
        return svg(sandbox("make up STACK=dev", recorded), "make up STACK=dev")
    up, jobs = (f"gpufleet {command}" for command in RECORDINGS[file.stem])
    before, _, after = recorded.partition(f"$ {jobs}\n")
    shown = Text("\n").join([sandbox(up, before), Text(), Text(f"$ {jobs}"), last_frame(after)])
    return svg(shown, "ARC's own controller and listeners; only GitHub is simulated")


def sandbox(command: str, recorded: str) -> Text:
    """Return the tables of a recording, without the tree of resources above them."""
    lines = recorded.splitlines()
    first = next(number for number, line in enumerate(lines) if Text.from_ansi(line).plain.startswith("node "))
    # A folded header has lines above the one with that word.
    while lines[first - 1]:
        first -= 1
    shown = "\n".join(line.rstrip() for line in [f"$ {command}", "…", "", *lines[first:]])
    return Text.from_ansi(shown)


def last_frame(recorded: str) -> Text:
    """Return the last state of a table that was drawn several times, and the lines before it."""
    before = [line for line in recorded.splitlines()[:1] if "\x1b" not in line]
    last = _LAST_FRAME.sub("", _CURSOR.sub("", recorded))
    return Text.from_ansi("\n".join([*before, *(line.rstrip() for line in last.splitlines())]))


def comment(markdown: str) -> Markdown:
    """Return a comment as GitHub shows it first: details are closed, and commits have no place in a picture."""
    return Markdown(_DETAILS.sub("", markdown).replace(" (COMMIT)", ""))


def svg(content: RenderableType, title: str) -> str:
    """Draw a terminal. The fonts are the reader's own: a picture loads nothing from elsewhere."""
    console = Console(
        record=True,
        width=COLUMNS,
        theme=_HEADINGS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        # The caller's terminal has no say in a generated file.
        _environ={},
    )
    console.print(content)
    drawn = console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id="terminal")
    return _FONT_FACE.sub("", drawn).rstrip() + "\n"


def record(name: str) -> None:
    """Run the commands of a recording in a terminal of 100 columns, keep what they print, and remove the sandbox."""
    gpufleet = pathlib.Path(sys.executable).with_name("gpufleet")
    printed = ""
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "PYTHONPATH": PYTHONPATH, "XDG_STATE_HOME": state, "TERM": "xterm-256color"}
        env |= {"COLUMNS": str(COLUMNS), "LINES": "50"}
        env.pop("NO_COLOR", None)
        try:
            for command in RECORDINGS[name]:
                code, output = in_a_terminal([gpufleet, "-C", ROOT, *command.split()], env)
                if code:
                    raise subprocess.CalledProcessError(code, command)
                printed += f"$ gpufleet {command}\n{output}" if printed else output
            (FOLDER / f"{name}.txt").write_text(printed)
        finally:
            stack = RECORDINGS[name][0].split()[2]
            subprocess.run([gpufleet, "-C", ROOT, "sandbox", "down", stack], env=env, check=True)


def in_a_terminal(command: Sequence[str | pathlib.Path], env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command on a terminal. Return its exit code and what it prints there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=sys.stderr)
    os.close(theirs)
    printed = bytearray()
    while chunk := _read(ours):
        printed += chunk
    os.close(ours)
    return process.wait(), printed.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Return the next output; nothing once the command has closed the terminal, which Linux reports as an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


if __name__ == "__main__":
    for recording in sys.argv[1:] or RECORDINGS:
        record(recording)
