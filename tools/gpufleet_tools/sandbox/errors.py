"""Exception of the sandbox."""

from __future__ import annotations


class SandboxError(Exception):
    """A fault that the user can act on.

    `lines` has one line for each fault: what is wrong, where, and what to do. `str()` is these lines, to be printed
    without a traceback.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines: tuple[str, ...] = lines
