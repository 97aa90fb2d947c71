"""Human-readable forms of a plan: a tree of resources, Kubernetes manifests, or files."""

from __future__ import annotations

import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.plan import machines
from gpufleet_tools.plan.plan import RELEASE, Hidden, Plan, Release, Resource, shown
from gpufleet_tools.plan.readable_yaml import dumped
from gpufleet_tools.terminal import UNBOUNDED, aligned, folded_line

if TYPE_CHECKING:
    from gpufleet_tools.plan.document import PlanDocument


def tree(plan: Plan, settings: Settings, *, dependencies: bool = False, columns: int = UNBOUNDED) -> str:
    """Return a tree of all resources, then a table of the runners. `dependencies` adds a line with the dependencies of
    each resource.

    The tree is formatted here: importing a library for it takes a tenth of a second, a fifth of the command's limit.
    """
    children: dict[str | None, list[Resource]] = defaultdict(list)
    for resource in plan.resources:
        children[resource.parent].append(resource)
    names = {resource.urn: f"{_kind(resource)} {resource.name}" for resource in plan.resources}
    unknown = {f"{_kind(resource)}: {resource.opaque}" for resource in plan.resources if resource.opaque}
    lines = [plan.stack, *_branches(None, children, names if dependencies else {}, columns)]
    for note in (*sorted(unknown), *machines.summary(plan)):
        lines += folded_line(note, columns)
    return "".join(f"{line}\n" for line in [*lines, "", *aligned(runners(settings), _WORDS, columns)])


def _branches(
    urn: str | None, children: Mapping[str | None, list[Resource]], names: Mapping[str, str], columns: int
) -> Iterator[str]:
    """Yield the lines of the resources below one. `names` has the names of dependencies; if empty, none are shown."""
    below = children.get(urn, [])
    for number, resource in enumerate(below, start=1):
        last = number == len(below)
        guide = "    " if last else "│   "
        # Continuation lines of a resource are beside the branch to its children.
        beside = f"{guide}{'│   ' if children.get(resource.urn) else '    '}"
        yield from folded_line(f"{'└── ' if last else '├── '}{_line(resource)}", columns, beside)
        if names and resource.depends_on:
            first = _some(sorted(names.get(urn, urn) for urn in resource.depends_on))
            yield from folded_line(f"{beside}depends on {first}", columns, f"{beside}  ")
        for line in _branches(resource.urn, children, names, columns - len(guide)):
            yield f"{guide}{line}"


def _line(resource: Resource) -> str:
    text = f"{_kind(resource)} {resource.name}"
    if resource.kind == "lookup":
        text += " (must exist already; read, never changed)"
    if resource.type == RELEASE:
        chart = resource.inputs["chart"].split("/")[-1]
        text += f" chart {chart} {resource.inputs['version']}"
    effect = machines.effect(resource)
    return f"{text} ({effect})" if effect else text


_MOST = 5
"""Maximum number of names in a line; a controller depends on dozens. The JSON document has all."""


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _kind(resource: Resource) -> str:
    """Return the last part of the type token."""
    kind = resource.type.split(":")[-1]
    return f"{kind} provider" if resource.kind == "provider" else kind


def runners(settings: Settings) -> list[tuple[str, ...]]:
    """Return the table of runners: a row of headings, then one for each label."""
    rows: list[tuple[str, ...]] = [("runs-on", "project", "GPUs", "CPU", "memory", "min", "max", "Docker")]
    for label in sorted(settings.runners):
        runner = settings.effective(label)
        docker = "yes" if runner.docker else "no"
        sizes = (str(runner.gpus), runner.cpu, runner.memory, str(runner.min), str(runner.max))
        rows.append((label, runner.project, *sizes, docker))
    return rows


_WORDS = ("runs-on", "project")
"""Left-aligned columns."""


def manifests(plan: Plan) -> str:
    """Return the manifests of all Kubernetes objects that the stack applies itself; then, as comments, the objects that
    must exist already, the values of every chart and kubespray's files."""
    documents = [dumped(_readable(object_)) for object_ in _in_order(plan.objects())]
    comments = [_expected(object_) for object_ in plan.expected_objects()]
    comments += [_chart(release) for release in plan.releases()]
    comments += [f"{path}, on the machine that runs kubespray:\n{text}" for path, text in machines.files(plan).items()]
    return "\n".join(["---\n".join(documents), *map(_commented, comments)])


def write(plan: Plan, document: PlanDocument, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write every manifest, every chart's values, kubespray's files and the document below the folder.

    Raises FileExistsError if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not an empty folder; choose a new one")
    files = {f"objects/{_file_name(object_)}.yaml": dumped(_readable(object_)) for object_ in plan.objects()}
    for release in plan.releases():
        files[f"charts/{release.namespace}.{release.name}.values.yaml"] = dumped(shown(release.values))
    files |= {f"kubespray/{path}": text for path, text in machines.files(plan).items()}
    files["plan.json"] = document.model_dump_json(indent=2) + "\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [folder / name for name in files]


def _in_order(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects with namespaces first, so that `kubectl apply` can process them in order."""
    return sorted(objects, key=lambda object_: object_["kind"] != "Namespace")


def _readable(object_: dict[str, Any]) -> Any:
    """Return the object as a manifest that a server accepts. A hidden value is not base64, so it is in `stringData`."""
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
    return f"{object_['kind']} {name} must exist already; read, never changed"


def _chart(release: Release) -> str:
    source = f" from {release.repository}" if release.repository else ""
    what = f"Helm release {release.namespace}/{release.name}: chart {release.chart} {release.version}{source}"
    return f"{what}\n{release.resource.opaque}; its values:\n{dumped(shown(release.values))}"


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _file_name(object_: dict[str, Any]) -> str:
    metadata = object_["metadata"]
    return ".".join(filter(None, (object_["kind"].lower(), metadata.get("namespace"), metadata["name"])))
