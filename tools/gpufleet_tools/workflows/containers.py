"""Containers of a workflow's jobs: the job itself, services, actions, and Docker commands.

A runner starts the first three through Docker or, in ARC's Kubernetes modes, as pods
(src/Runner.Worker/ContainerOperationProvider.cs of actions/runner).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import yaml

from gpufleet_tools.workflows.expressions import Unknown, Value

Entries = Mapping[str, yaml.Node]
Values = Callable[[yaml.Node], list[Value]]
"""Function that returns the possible values of a node. Raises NotAnExpression."""


@dataclass(frozen=True)
class Containers:
    """Containers of one job, for one result of its expressions."""

    job: bool | None = False
    """Whether the job itself runs in a container; None if known only at run time."""
    started: str | None = None
    """The first key of the job that certainly makes the runner start a container: `container`, `services`."""
    action: str | None = None
    """Image of the first step that is a container: `docker://alpine:3.22`."""
    command: str | None = None
    """The first Docker command of a step: `docker build`."""


NO_CONTAINERS = Containers()


def of_job(job: Entries, values: Values) -> Containers:
    """Return the containers of a job."""
    itself = _has_image(job.get("container"), values)
    services = [_has_image(service, values) for service in _entries(job.get("services")).values()]
    started = "container" if itself else "services" if True in services else None
    steps = [*_steps(job)]
    return Containers(itself, started, next(_actions(steps), None), _docker_command(job, steps))


def _entries(node: yaml.Node | None) -> Entries:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _has_image(node: yaml.Node | None, values: Values) -> bool | None:
    """Return whether a container has an image; without one, GitHub starts no container (docs.github.com, "Workflow
    syntax", jobs.<job_id>.container.image)."""
    if isinstance(node, yaml.MappingNode):
        node = _entries(node).get("image")
    if node is None:
        return False
    if not isinstance(node, yaml.ScalarNode):
        return None
    found = {_is_image(value.content) for value in values(node)}
    return found.pop() if len(found) == 1 else None


def _is_image(content: object) -> bool | None:
    if isinstance(content, str) or content is None:
        return bool(content)
    # An object can have an empty image.
    return None if isinstance(content, Unknown | dict) else True


def _steps(job: Entries) -> Iterator[Entries]:
    """Yield the steps that certainly run."""
    steps = job.get("steps")
    for step in steps.value if isinstance(steps, yaml.SequenceNode) else ():
        entries = _entries(step)
        if "if" not in entries:
            yield entries


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _actions(steps: list[Entries]) -> Iterator[str]:
    for step in steps:
        used = _text(step.get("uses"))
        if used.startswith("docker://"):
            yield used


_COMMAND = re.compile(
    r"^[ \t]*(?:sudo[ \t]+)?(docker[ \t]+(?:build|compose|exec|image|images|network|ps|pull|push|run|tag|volume))\b",
    re.MULTILINE,
)
"""A command that needs a daemon, at the start of a line."""

_OTHER_DAEMON = re.compile(r"DOCKER_HOST|driver|command -v docker|which docker|dockerd|docker context")
"""Words of a job that brings a daemon of its own, builds elsewhere, or looks whether there is Docker."""


def _docker_command(job: Entries, steps: list[Entries]) -> str | None:
    if any(_OTHER_DAEMON.search(text) for text in _texts(job.get("steps"), job.get("env"))):
        return None
    for step in steps:
        if found := _COMMAND.search(_text(step.get("run"))):
            return " ".join(found[1].split())
    return None


def _texts(*nodes: yaml.Node | None, depth: int = 6) -> Iterator[str]:
    """Yield the texts of nodes, keys included. Steps are a few levels deep."""
    for node in nodes:
        if isinstance(node, yaml.ScalarNode):
            yield str(node.value)
        elif isinstance(node, yaml.CollectionNode) and depth:
            for item in node.value:
                yield from _texts(*(item if isinstance(item, tuple) else (item,)), depth=depth - 1)
