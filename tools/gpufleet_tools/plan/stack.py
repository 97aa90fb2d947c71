"""A stack of a Pulumi project: its file, its settings and its plan."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import NAMESPACE
from gpufleet_stacks.settings.stack_file import StackFile, stack_files, stack_name
from gpufleet_tools.plan.plan import Plan
from gpufleet_tools.plan.recorder import record

STAND_IN = "stand-in-for-a-secret"
"""Value of every secret in an offline plan."""


@dataclass(frozen=True)
class Stack:
    """A stack with valid settings."""

    root: pathlib.Path
    """Folder of the Pulumi project."""
    file: StackFile
    """The stack file."""
    settings: Settings
    """Settings in the stack file."""

    @property
    def name(self) -> str:
        return self.file.stack

    def plan(self, *, unknown_outputs: bool = True) -> Plan:
        """Return the plan of the stack's program, with stand-ins for its secrets."""
        values = {f"{NAMESPACE}:{key}": value for key, value in self.file.values.items()}
        keys = {f"{NAMESPACE}:{key}" for key in self.settings.secret_keys()} | self.file.foreign_secrets
        secrets = dict.fromkeys(sorted(keys), STAND_IN)
        return record(
            self.root,
            self.name,
            {**self.file.foreign, **values},
            secrets=secrets,
            unknown_outputs=unknown_outputs,
        )


def read(root: pathlib.Path, name: str) -> Stack:
    """Return the stack of that name. Raises gpufleet_stacks.settings.problems.InvalidSettings."""
    settings, file = load.from_file(root / f"Pulumi.{name}.yaml")
    return Stack(root, file, settings)


def names(root: pathlib.Path) -> list[str]:
    """Return the sorted names of the stacks whose files are in the folder."""
    return [stack_name(path) for path in stack_files(root)]
