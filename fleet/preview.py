"""The plan for people: a tree of what would exist, Kubernetes manifests, or files."""

from __future__ import annotations

import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleet.plan import RELEASE, Hidden, Plan, Release, Resource, shown
from fleet.readable_yaml import dumped
from stacks.settings import Settings

if TYPE_CHECKING:
    from fleet.document import PlanDocument


def tree(plan: Plan, settings: Settings) -> str:
    """A tree of every resource, then what it gives the people who use the runners.

    Plain text, made here: importing a library for it takes a tenth of a second, a fifth of what the whole command may.
    """
    children: dict[str | None, list[Resource]] = defaultdict(list)
    for resource in plan.resources:
        children[resource.parent].append(resource)
    names = {resource.urn: f"{_kind(resource)} {resource.name}" for resource in plan.resources}
    unknown = {f"{_kind(resource)}: {resource.opaque}" for resource in plan.resources if resource.opaque}
    lines = [plan.stack, *_branches(None, children, names), *sorted(unknown), "", *_columns(runners(settings))]
    return "".join(f"{line}\n" for line in lines)


def _branches(
    urn: str | None, children: Mapping[str | None, list[Resource]], names: Mapping[str, str]
) -> Iterator[str]:
    below = children.get(urn, [])
    for number, resource in enumerate(below, start=1):
        last = number == len(below)
        yield f"{'└── ' if last else '├── '}{_line(resource, names)}"
        for line in _branches(resource.urn, children, names):
            yield f"{'    ' if last else '│   '}{line}"


def _line(resource: Resource, names: Mapping[str, str]) -> str:
    text = f"{_kind(resource)} {resource.name}"
    if resource.kind == "lookup":
        text += " (exists already: looked up, never changed)"
    if resource.type == RELEASE:
        chart = resource.inputs["chart"].split("/")[-1]
        text += f" chart {chart} {resource.inputs['version']}"
    if resource.depends_on:
        text += f" waits for {_some(sorted(names.get(urn, urn) for urn in resource.depends_on))}"
    return text


_MOST = 5
"""Names that a line has room for; a controller waits for dozens. The JSON document has them all."""


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _kind(resource: Resource) -> str:
    """The last part of the type token, as people say it."""
    kind = resource.type.split(":")[-1]
    return f"{kind} provider" if resource.kind == "provider" else kind


def runners(settings: Settings) -> list[tuple[str, ...]]:
    """What each label gives a job: a row of names, then one for each label."""
    rows: list[tuple[str, ...]] = [("runs-on", "project", "GPUs", "CPU", "memory", "idle", "at most", "Docker")]
    for label, runner in sorted(settings.runners.items()):
        docker = "yes" if runner.docker else "no"
        sizes = (str(runner.gpus), runner.cpu, runner.memory, str(runner.min), str(runner.max))
        rows.append((label, runner.project, *sizes, docker))
    return rows


_LEFT = 2
"""Columns of words, which start at the left; numbers end at the right."""


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:_LEFT], widths[:_LEFT], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[_LEFT:], widths[_LEFT:], strict=True)]
        yield "  ".join([*words, *numbers]).rstrip()


def manifests(plan: Plan) -> str:
    """Kubernetes manifests of everything that the stack applies itself; then, as comments, what has to be there already
    and every chart's values."""
    documents = [dumped(_readable(object_)) for object_ in _in_order(plan.objects())]
    comments = [_expected(object_) for object_ in plan.expected_objects()]
    comments += [_chart(release) for release in plan.releases()]
    return "\n".join(["---\n".join(documents), *map(_commented, comments)])


def write(plan: Plan, document: PlanDocument, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes every manifest, every chart's values and the document as files below the folder.

    Raises FileExistsError when the folder has something in it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not an empty folder; name a new one")
    files = {f"objects/{_file_name(object_)}.yaml": dumped(_readable(object_)) for object_ in plan.objects()}
    for release in plan.releases():
        files[f"charts/{release.namespace}.{release.name}.values.yaml"] = dumped(shown(release.values))
    files["plan.json"] = document.model_dump_json(indent=2) + "\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [folder / name for name in files]


def _in_order(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Namespaces first, so that the whole can be applied from top to bottom."""
    return sorted(objects, key=lambda object_: object_["kind"] != "Namespace")


def _readable(object_: dict[str, Any]) -> Any:
    """The object as a manifest that a server accepts: a hidden value is no base64, so it stands under `stringData`."""
    data = object_.get("data")
    if object_["kind"] != "Secret" or not isinstance(data, Mapping):
        return shown(object_)
    hidden = {key: value for key, value in data.items() if isinstance(value, Hidden)}
    readable = {key: value for key, value in data.items() if key not in hidden}
    rest = {key: value for key, value in object_.items() if key != "data"} | ({"data": readable} if readable else {})
    return shown(rest | {"stringData": {**object_.get("stringData", {}), **hidden}})


def _expected(object_: dict[str, Any]) -> str:
    metadata = object_["metadata"]
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return f"{object_['kind']} {name} exists already: looked up, never changed"


def _chart(release: Release) -> str:
    source = f" from {release.repository}" if release.repository else ""
    what = f"Helm release {release.namespace}/{release.name}: chart {release.chart} {release.version}{source}"
    return f"{what}\n{release.resource.opaque}; its values:\n{dumped(shown(release.values))}"


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _file_name(object_: dict[str, Any]) -> str:
    metadata = object_["metadata"]
    return ".".join(filter(None, (object_["kind"].lower(), metadata.get("namespace"), metadata["name"])))
