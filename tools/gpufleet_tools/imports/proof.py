"""Command `gpufleet import`: existing scale sets as entries of a stack file, with a comparison of their values."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from pydantic import ValidationError

from gpufleet.arc.controller import ControllerReference, listener_metrics, service_account_name
from gpufleet.arc.project import ProjectReference
from gpufleet.arc.scale_set import scale_set_values
from gpufleet.arc.strategic_merge import MERGE_KEYS
from gpufleet.problem import Path
from gpufleet_stacks.runners import Place, proxy_value, scale_set_args, tls_value
from gpufleet_stacks.settings import wording
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import NAMESPACE, SET_SECRET, dotted, listed, quoted
from gpufleet_stacks.settings.rules import profiles as profile_rules
from gpufleet_stacks.settings.stack_file import StackFile
from gpufleet_tools.imports.arc_values import NO_SCALE_SET, GithubSecret, Passed, ScaleSet, UnreadableValues, read
from gpufleet_tools.imports.chart_template import rendered
from gpufleet_tools.imports.entries import ImportedRunner, imported
from gpufleet_tools.imports.leftover import patched_fields, template_patch
from gpufleet_tools.imports.pods import Entry
from gpufleet_tools.imports.substitution import filled_in, variables
from gpufleet_tools.imports.value_differences import ABSENT, Difference, differences


@dataclass
class Import:
    """Result of an import."""

    projects: dict[str, Entry] = field(default_factory=dict)
    """Entries of `projects`; scale sets share equal ones."""
    profiles: dict[str, Entry] = field(default_factory=dict)
    """Entries of `profiles`; scale sets share equal ones."""
    runners: dict[str, Entry] = field(default_factory=dict)
    """Entries of `runners`."""
    arc: Entry = field(default_factory=dict)
    """Section `arc`, if the controller is not the default one."""
    lines: list[str] = field(default_factory=list)
    """Notes and differences, in the order of the files."""
    differs: bool = False
    """Whether anything of a runner would change or be lost."""
    controller: tuple[str, str, str] | None = None
    """Service account and namespace of the controller, and the file with them."""

    def text(self) -> str:
        """Return the entries as YAML with the key `config`."""
        sections = {"arc": self.arc, "projects": self.projects, "profiles": self.profiles, "runners": self.runners}
        config = {f"{NAMESPACE}:{name}": section for name, section in sections.items() if section}
        text: str = yaml.safe_dump({"config": config}, sort_keys=False, allow_unicode=True, width=120)
        return text


def read_all(
    files: Sequence[str],
    namespace: str | None,
    more: Mapping[str, str],
    substitutes: Mapping[str, str] | None = None,
) -> Import:
    """Import files, each `PATH` or `LABEL=PATH`. `more` are values of the chart that are not in the files;
    `substitutes` are values of variables that Flux or Terraform substitute.

    Raises UnreadableValues.
    """
    found = Import()
    # All files are read first: the Secret of a scale set may be in a later file.
    split = [given.partition("=") if "=" in given else ("", "", given) for given in files]
    parts = [(label or None, path, one) for label, _, path in split for one in read(pathlib.Path(path))]
    secrets = [one for _, _, one in parts if isinstance(one, GithubSecret)]
    used: list[GithubSecret] = []
    for label, path, one in parts:
        if isinstance(one, ScaleSet):
            complete = filled_in(replace(one, values={**one.values, **more}), substitutes or {})
            secret = _named(complete, secrets, namespace)
            add(found, complete, label, namespace, secret)
            used += [secret] if secret else []
        elif isinstance(one, Passed):
            found.lines.append(f"{path}: {one.what}: passed over: {one.why}")
    for each in secrets:
        if each not in used:
            found.lines.append(f"{each.origin}: Secret {each.name}: passed over: no scale set of these files names it")
    if not found.runners:
        raise UnreadableValues(f"{', '.join(path for _, _, path in split)}: {NO_SCALE_SET}")
    return found


def _named(scale_set: ScaleSet, secrets: Iterable[GithubSecret], namespace: str | None) -> GithubSecret | None:
    """Return the given Secret that a scale set refers to, in the same namespace."""
    name, own = scale_set.values.get("githubConfigSecret"), scale_set.namespace or namespace
    fitting = [each for each in secrets if each.name == name and (not own or each.namespace in (None, own))]
    return fitting[0] if fitting else None


def add(
    found: Import, scale_set: ScaleSet, chosen: str | None, namespace: str | None, secret: GithubSecret | None
) -> None:
    """Add a scale set to an import. `chosen` is the label on the command line."""
    label = chosen or scale_set.label or _word(pathlib.Path(scale_set.origin).stem)
    if label in found.runners:
        raise UnreadableValues(
            f"{scale_set.origin}: another scale set has the label '{label}' already; choose one with LABEL=PATH"
        )
    url = str(scale_set.values.get("githubConfigUrl") or "").rstrip("/")
    own = scale_set.namespace or namespace or (secret and secret.namespace) or _word(url.rpartition("/")[2]) or label
    runner = imported(scale_set, label, own, secret)
    _controller(found, runner.values, scale_set.origin)
    where = f"{scale_set.origin}: {label}"
    alone = Import(
        projects={"project": runner.project},
        profiles={"profile": runner.profile},
        runners={label: {"project": "project", "profile": "profile"} | runner.runner},
    )
    proof = list(_proof(alone, runner, ("project", "profile")))
    project = _shared(found.projects, _word(url.rpartition("/")[2]) or label, runner.project)
    entry: Entry = {"project": project}
    if runner.profile:
        entry["profile"] = _shared(found.profiles, project, runner.profile)
    found.runners[label] = entry | runner.runner
    names = {"projects.project": f"projects.{project}", "profiles.profile": f"profiles.{entry.get('profile')}"}
    if not chosen and not scale_set.label:
        found.lines.append(f"{where}: the label is the file's name; choose another with LABEL={scale_set.origin}")
    found.lines += [f"{where}: {note}" for note in runner.notes]
    if runner.secret:
        file = f"{secret.origin}, Secret {secret.name}" if secret else "the file"
        warning = (
            f"credentials are in {file}; revoke them, then: " if scale_set.values.get("githubConfigSecret") else ""
        )
        found.lines.append(f"{where}: {warning}{SET_SECRET}{project}-{runner.secret}")
    lines = [_named_as(line, names) for line in proof]
    found.lines += [
        f"{where}: ${{{name}}} is filled in elsewhere; give its value: --substitute {name}=VALUE"
        for name in sorted({name for line in lines if line.startswith(LOSSES[2]) for name in variables(line)})
    ]
    if secret:
        lines += [f"loses: Secret {secret.name}: {key} -> nothing" for key in secret.further]
    if scale_set.label and scale_set.label != label:
        lines.insert(0, f"differs: label: {quoted(scale_set.label)} -> {quoted(label)}")
    found.differs = found.differs or any(not line.startswith((ADDS, KEPT, STACKS)) for line in lines)
    found.lines += [f"{where}: {line}" for line in lines]
    if not any(line.startswith(LOSSES) for line in lines):
        found.lines.append(f"{where}: the entries produce the same values{', with additions' if lines else ''}")


LOSSES = ("differs: ", "loses: ", "cannot be expressed: ")
"""Prefixes of lines about values that would change or be lost."""


def _named_as(line: str, names: Mapping[str, str]) -> str:
    """Return a line with the final names of entries."""
    for stand_in, name in names.items():
        line = line.replace(f": {stand_in}.", f": {name}.")
    return line


def _shared(entries: dict[str, Entry], name: str, entry: Entry) -> str:
    """Return the name of an equal entry: `name`, `name-2` and so on. Add the entry if there is none."""
    for candidate in itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2))):
        if entries.setdefault(candidate, entry) == entry:
            return candidate
    raise AssertionError("numbers end")


def _word(text: str) -> str:
    """Return the text as a Kubernetes name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:45].strip("-")


# -- comparison of values ---------------------------------------------------------------------------------------------


def _proof(found: Import, runner: ImportedRunner, names: tuple[str, str | None]) -> Iterator[str]:
    """Yield the differences between the chart's values and those that the program computes from the entries. Fields
    without a setting are kept in `podTemplate`, and reported."""
    entries = _Entries(found, runner, *names)
    faults, values = _values(entries)
    yield from (f"cannot be expressed: {fault}" for fault in faults)
    before = rendered(runner.values)
    left = template_patch(before, rendered(values))
    if left and entries.profile is not None:
        entries.profile["podTemplate"] = left
        more, values = _values(entries)
        yield from (f"cannot be expressed: {fault}" for fault in more if fault not in faults)
        yield from (f"{KEPT}{path}" for path in dict.fromkeys(patched_fields(entries.profile["podTemplate"])))
    for difference in differences(before, rendered(values)):
        if not _is_of_the_stack(difference, found):
            yield f"{_word_for(difference)}{difference}"


def _word_for(difference: Difference) -> str:
    if difference.path == "controllerServiceAccount.name":
        return STACKS
    return ADDS if difference.before is ABSENT else "loses: " if difference.after is ABSENT else "differs: "


ADDS, KEPT, STACKS = "adds: ", "has no setting, so podTemplate keeps it: ", "the stack's own controller has: "
"""Prefixes of lines about values that are not lost."""


def _is_of_the_stack(difference: Difference, found: Import) -> bool:
    """Return whether the whole stack determines a value that the file does not have."""
    if difference.before is not ABSENT:
        return False
    return difference.path in ("controllerServiceAccount", "listenerMetrics")


@dataclass
class _Entries:
    """Entries of one scale set in an import."""

    found: Import
    runner: ImportedRunner
    project_name: str
    profile_name: str | None

    @property
    def profile(self) -> Entry | None:
        """Profile of the scale set, which may be changed."""
        return self.found.profiles[self.profile_name] if self.profile_name else None

    def sections(self) -> dict[str, Any]:
        """Return the entries as sections of a stack file."""
        return {
            "projects": {self.project_name: self.found.projects[self.project_name]},
            "profiles": {self.profile_name: self.profile} if self.profile_name else {},
            "runners": {self.runner.label: self.found.runners[self.runner.label]},
        }


def _values(entries: _Entries) -> tuple[list[str], dict[str, Any]]:
    """Return the faults of the entries, and the chart's values that the program computes from the rest."""
    sections, faults = copy.deepcopy(entries.sections()), []
    while True:
        try:
            settings = Settings.model_validate(sections)
            break
        except ValidationError as error:
            problems = [wording.problem(detail, Settings, _NO_FILE) for detail in error.errors(include_url=False)]
            faults += [f"{dotted(each.path)}: {each.message}" for each in problems]
            # From the end, so that the indices of the others stay valid.
            for each in reversed(problems):
                _drop(sections, each.path)
                if each.path[2:3] == ("podTemplate",) and entries.profile is not None:
                    _drop_deep(entries.profile, each.path[2:])
    broken = [each for rule in profile_rules.RULES for each in rule(settings)]
    faults += [f"{dotted(each.path)}: {each.message}" for each in broken]
    return list(dict.fromkeys(faults)), _chart_values(entries, settings)


_NO_FILE = StackFile(pathlib.Path(), "import", {}, frozenset(), {})

_STAND_INS: Mapping[str, Entry] = {
    "runners": {"project": "stand-in", "gpus": 0, "cpu": 1, "memory": "1Gi", "max": 1},
    "projects": {
        "configUrl": "https://github.com/stand-in",
        "namespace": "stand-in",
        "credentials": {"kind": "existingSecret", "secretName": "stand-in"},
    },
}
"""Substitutes for required settings that have problems."""


def _drop_deep(value: Any, path: Path) -> None:
    """Remove the field at a path; if it is missing, remove the field that requires it. A list's item is removed with
    the key that identifies it."""
    if path[-1] in MERGE_KEYS.values() and isinstance(path[-2], int):
        path = path[:-1]
    *parents, last = path
    try:
        holder = functools.reduce(operator.getitem, parents, value)
    except (KeyError, IndexError, TypeError):
        # It was in another field with a problem, which has been removed.
        return
    size = len(holder) if isinstance(holder, list) else None
    if last in (range(size) if size is not None else holder):
        del holder[last]
    elif parents:
        _drop_deep(value, tuple(parents))


def _drop(sections: dict[str, Any], path: Path) -> None:
    """Remove the setting that has a problem, or replace it if it is required."""
    if path[2:3] == ("podTemplate",) and len(path) > 3:
        _drop_deep(sections, path)
        return
    section, name, *rest = [*path, None, None][: max(len(path), 3)]
    entries = sections[str(section)]
    if rest[0] is None:
        entry = entries.pop(name)
        # The name itself has the problem.
        entries["stand-in"] = entry
        if section != "profiles":
            return
    key = str(rest[0])
    entry = entries.get(name, {})
    stand_in = _STAND_INS.get(str(section), {}).get(key)
    entry.pop(key, None)
    if stand_in is not None:
        entry[key] = stand_in


def _chart_values(entries: _Entries, settings: Settings) -> dict[str, Any]:
    """Return the chart's values that the program computes from settings, on a pool that has the requested GPUs."""
    account = entries.runner.values.get("controllerServiceAccount")
    name, namespace = _account(account if isinstance(account, dict) else {})
    controller = ControllerReference(
        service_account=service_account_name(_release(name)), namespace=namespace, listener_metrics=listener_metrics()
    )
    (label,), (described,) = settings.runners, settings.projects.values()
    reference = ProjectReference(
        config_url=described.config_url,
        namespace=described.namespace,
        credentials_secret=described.credentials.secret_name,
        runner_group=described.runner_group,
        proxy=proxy_value(described.proxy) if described.proxy else None,
        server_tls=tls_value(described.server_certificate) if described.server_certificate else None,
    )
    place = Place(gpu_resource=entries.runner.gpu_resource)
    return scale_set_values(scale_set_args(label, settings, place, controller, reference))


# -- the controller ---------------------------------------------------------------------------------------------------


def _controller(found: Import, values: Mapping[str, Any], origin: str) -> None:
    """Record the controller of a scale set. Raises UnreadableValues if scale sets have different controllers."""
    given = values.get("controllerServiceAccount")
    if not isinstance(given, dict) or not given:
        return
    account = _account(given)
    if found.controller and found.controller[:2] != account:
        other = found.controller
        raise UnreadableValues(
            f"{origin}: its controller is {account[0]} in namespace {account[1]}, and that of {other[2]} is {other[0]}"
            f" in {other[1]}; a stack has one controller, so import them into two stacks"
        )
    found.controller = (*account, origin)
    name, namespace = account
    found.arc = {"namespace": namespace} if namespace != "arc-systems" else {}
    found.arc |= {"release": release} if (release := _release(name)) != "arc" else {}


def _account(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and namespace of a controller's service account; by default, those of a stack."""
    return str(given.get("name", "arc-gha-rs-controller")), str(given.get("namespace", "arc-systems"))


def _release(account: str) -> str:
    """Return the Helm release that creates a service account of that name."""
    release = account.removesuffix("-gha-rs-controller")
    return release if service_account_name(release) == account else account


# -- the command ------------------------------------------------------------------------------------------------------


SETTABLE = ("githubConfigUrl", "githubConfigSecret", "runnerGroup")
"""Values for `--set`, all of them texts. Of a Secret only the name."""


def _pair(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not equals or key not in SETTABLE:
        raise UnreadableValues(f"--set {quoted(given)}: is not KEY=VALUE, where KEY is {listed(SETTABLE)}")
    return key, value


def _substitute(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.isidentifier():
        raise UnreadableValues(f"--substitute {quoted(given)}: is not NAME=VALUE, where NAME is the name in ${{NAME}}")
    return name, value


def run(
    files: Sequence[str],
    namespace: str | None,
    given: Sequence[str],
    out: pathlib.Path | None,
    substitutes: Sequence[str] = (),
) -> int:
    """Print the entries, and the comparison on standard error. Return the exit code. 0: nothing would change; 1:
    something would; 2: a file cannot be read."""
    try:
        pairs, variables_ = dict(map(_pair, given)), dict(map(_substitute, substitutes))
        found = read_all(files, namespace, pairs, variables_)
    except UnreadableValues as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return 2
    if out:
        out.write_text(found.text())
    else:
        print(found.text(), end="")
    for line in found.lines:
        print(line, file=sys.stderr)
    return int(found.differs)
