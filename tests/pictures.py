"""The README's pictures: terminals drawn as SVG. `python -m tests.pictures` records the sandbox's output again.

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

RECORDING = FOLDER / "up-dev.txt"
"""Output of `gpufleet sandbox up dev`, with the terminal's escape sequences."""

COMMENT = ROOT / "tests/golden/diff/raise-max-beyond-the-pool.md"
"""A comment of `gpufleet diff --format markdown`; a test keeps it current."""

COLUMNS = 100

_HEADINGS = Theme({"markdown.h3": "bold", "markdown.h4": "bold", "markdown.code": "bold cyan"})
"""Of the comment: GitHub shows headings in bold, rich in colours that hardly show."""

_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)

_DETAILS = re.compile(r"<details>.*?</details>\n?", re.DOTALL)


SANDBOX, PULL_REQUEST = FILES = (FOLDER / "up-dev.svg", FOLDER / "pull-request.svg")
"""The pictures."""


def drawn(file: pathlib.Path) -> str:
    """Return a picture as SVG."""
    if file == SANDBOX:
        return svg(sandbox(RECORDING.read_text()), "make up STACK=dev")
    return svg(comment(COMMENT.read_text()), "the comment on a pull request")


def sandbox(recorded: str) -> Text:
    """Return the tables of a recording, without the tree of resources above them."""
    lines = recorded.splitlines()
    first = next(number for number, line in enumerate(lines) if Text.from_ansi(line).plain.startswith("node "))
    # A folded header has lines above the one with that word.
    while lines[first - 1]:
        first -= 1
    shown = "\n".join(line.rstrip() for line in ["$ make up STACK=dev", "…", "", *lines[first:]])
    return Text.from_ansi(shown)


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


def record() -> None:
    """Bring the sandbox of `dev` up in a terminal of 100 columns, keep what it prints, and take the sandbox down."""
    gpufleet = pathlib.Path(sys.executable).with_name("gpufleet")
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "PYTHONPATH": PYTHONPATH, "XDG_STATE_HOME": state, "TERM": "xterm-256color"}
        env |= {"COLUMNS": str(COLUMNS), "LINES": "50"}
        env.pop("NO_COLOR", None)
        try:
            command = [gpufleet, "-C", ROOT, "sandbox", "up", "dev"]
            code, printed = in_a_terminal(command, env)
            if code:
                raise subprocess.CalledProcessError(code, command)
            RECORDING.write_text(printed)
        finally:
            subprocess.run([gpufleet, "-C", ROOT, "sandbox", "down", "dev"], env=env, check=True)


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
    record()
