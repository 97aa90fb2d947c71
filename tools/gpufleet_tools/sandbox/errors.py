"""The one exception of the sandbox."""

from __future__ import annotations


class SandboxError(Exception):
    """A fault that the person at the keyboard can act on.

    `lines` holds one line per fault: what is wrong, where, and what to do about it. `str()` of the error is
    those lines and is meant to be printed as it is, without a traceback.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines: tuple[str, ...] = lines
