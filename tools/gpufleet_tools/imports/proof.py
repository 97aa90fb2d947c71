"""`gpufleet import`: scale sets of others as entries of a stack file, with the proof that they behave the same."""

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
from gpufleet_stacks.runners import Place, scale_set_args
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
    """What several files come to."""

    projects: dict[str, Entry] = field(default_factory=dict)
    """Entries of `projects`; scale sets with the same share one."""
    profiles: dict[str, Entry] = field(default_factory=dict)
    """Entries of `profiles`; scale sets with the same share one."""
    runners: dict[str, Entry] = field(default_factory=dict)
    """Entries of `runners`."""
    arc: Entry = field(default_factory=dict)
    """Section `arc`, where the controller is not the default one."""
    lines: list[str] = field(default_factory=list)
    """What there is to say, in the order of the files: notes, and differences."""
    differs: bool = False
    """Whether anything that a runner has would change or be lost."""
    controller: tuple[str, str, str] | None = None
    """Service account and namespace of the controller, and the file that tells them."""

    def text(self) -> str:
        """The entries as YAML that goes below `config:`."""
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
    """Imports files, each `PATH` or `LABEL=PATH`. `more` are values of the chart that are not in the files;
    `substitutes` are values of variables that Flux or Terraform fill in.

    Raises UnreadableValues.
    """
    found = Import()
    # All are read first: the secret that a scale set names may be in a later file.
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
    """The secret that a scale set names, of those that were given; of two namespaces it is not the same."""
    name, there = scale_set.values.get("githubConfigSecret"), scale_set.namespace or namespace
    fitting = [each for each in secrets if each.name == name and (not there or each.namespace in (None, there))]
    return fitting[0] if fitting else None


def add(
    found: Import, scale_set: ScaleSet, asked: str | None, namespace: str | None, secret: GithubSecret | None
) -> None:
    label = asked or scale_set.label or _word(pathlib.Path(scale_set.origin).stem)
    if label in found.runners:
        raise UnreadableValues(f"{scale_set.origin}: label '{label}' is already that of another scale set; LABEL=PATH")
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
    if not asked and not scale_set.label:
        found.lines.append(f"{where}: the label is the file's name; say another with LABEL={scale_set.origin}")
    found.lines += [f"{where}: {note}" for note in runner.notes]
    if runner.secret:
        file = f"{secret.origin}, Secret {secret.name}" if secret else "the file"
        there = f"credentials are in {file}; revoke them, then: " if scale_set.values.get("githubConfigSecret") else ""
        found.lines.append(f"{where}: {there}{SET_SECRET}{project}-{runner.secret}")
    lines = [_named_as(line, names) for line in proof]
    found.lines += [
        f"{where}: ${{{name}}} is filled in elsewhere; give its value: --substitute {name}=VALUE"
        for name in sorted({name for line in lines if line.startswith(TOLD[2]) for name in variables(line)})
    ]
    if secret:
        lines += [f"loses: Secret {secret.name}: {key} -> nothing" for key in secret.further]
    if scale_set.label and scale_set.label != label:
        lines.insert(0, f"differs: label: {quoted(scale_set.label)} -> {quoted(label)}")
    found.differs = found.differs or any(not line.startswith((ADDS, KEPT, STACKS)) for line in lines)
    found.lines += [f"{where}: {line}" for line in lines]
    if not any(line.startswith(TOLD) for line in lines):
        found.lines.append(f"{where}: the same values come out again{', with additions' if lines else ''}")


TOLD = ("differs: ", "loses: ", "cannot be expressed: ")
"""How lines begin about what would change or be lost."""


def _named_as(line: str, names: Mapping[str, str]) -> str:
    """A line with the names that the entries get in the end."""
    for stand_in, name in names.items():
        line = line.replace(f": {stand_in}.", f": {name}.")
    return line


def _shared(entries: dict[str, Entry], name: str, entry: Entry) -> str:
    """Name of an equal entry of that name: `name`, or `name-2` and so on. It is added where there is none."""
    for candidate in itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2))):
        if entries.setdefault(candidate, entry) == entry:
            return candidate
    raise AssertionError("numbers end")


def _word(text: str) -> str:
    """The text as a Kubernetes name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:45].strip("-")


# -- the proof --------------------------------------------------------------------------------------------------------


def _proof(found: Import, runner: ImportedRunner, names: tuple[str, str | None]) -> Iterator[str]:
    """What would change: the chart's values before, against those that the program makes of the entries. What no
    setting says is kept as `podTemplate`, and told."""
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
        if not _is_the_stack_s(difference, found):
            yield f"{_word_for(difference)}{difference}"


def _word_for(difference: Difference) -> str:
    if difference.path == "controllerServiceAccount.name":
        return STACKS
    return ADDS if difference.before is ABSENT else "loses: " if difference.after is ABSENT else "differs: "


ADDS, KEPT, STACKS = "adds: ", "has no setting, so podTemplate keeps it: ", "the stack's own controller has: "
"""How lines about what is not lost begin."""


def _is_the_stack_s(difference: Difference, found: Import) -> bool:
    """Whether a whole stack decides it, and the file says nothing of it: then nothing of the runner's is lost."""
    if difference.before is not ABSENT:
        return False
    return difference.path in ("controllerServiceAccount", "listenerMetrics")


@dataclass
class _Entries:
    """The entries of one scale set among those of an import."""

    found: Import
    runner: ImportedRunner
    project_name: str
    profile_name: str | None

    @property
    def profile(self) -> Entry | None:
        """Its profile, which may change."""
        return self.found.profiles[self.profile_name] if self.profile_name else None

    def sections(self) -> dict[str, Any]:
        """As they stand in a stack file."""
        return {
            "projects": {self.project_name: self.found.projects[self.project_name]},
            "profiles": {self.profile_name: self.profile} if self.profile_name else {},
            "runners": {self.runner.label: self.found.runners[self.runner.label]},
        }


def _values(entries: _Entries) -> tuple[list[str], dict[str, Any]]:
    """What of the entries no stack file can say, and the chart's values that the program makes of the rest."""
    sections, faults = copy.deepcopy(entries.sections()), []
    while True:
        try:
            settings = Settings.model_validate(sections)
            break
        except ValidationError as error:
            problems = [wording.problem(detail, Settings, _NO_FILE) for detail in error.errors(include_url=False)]
            faults += [f"{dotted(each.path)}: {each.message}" for each in problems]
            # From the end, so that the indices of the others stay true.
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
"""Settings that have to be there, for those that have problems."""


def _drop_deep(value: Any, path: Path) -> None:
    """Leave out the field at a path; if it is missing, leave out what requires it. An item of a list without the key
    that identifies it says nothing, so that it goes with its key."""
    if path[-1] in MERGE_KEYS.values() and isinstance(path[-2], int):
        path = path[:-1]
    *parents, last = path
    try:
        holder = functools.reduce(operator.getitem, parents, value)
    except (KeyError, IndexError, TypeError):
        # It was in a field with a problem of its own, which is gone.
        return
    size = len(holder) if isinstance(holder, list) else None
    if last in (range(size) if size is not None else holder):
        del holder[last]
    elif parents:
        _drop_deep(value, tuple(parents))


def _drop(sections: dict[str, Any], path: Path) -> None:
    """Leave out the setting that has a problem, or replace it where there has to be one."""
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
    """The chart's values that the program makes of settings, on a pool that has what they ask for."""
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
    )
    place = Place(gpu_resource=entries.runner.gpu_resource)
    return scale_set_values(scale_set_args(label, settings, place, controller, reference))


# -- the controller ---------------------------------------------------------------------------------------------------


def _controller(found: Import, values: Mapping[str, Any], origin: str) -> None:
    """Remember the controller of a scale set. Raises UnreadableValues where another one has another."""
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
    """Name and namespace of a controller's service account; a stack's own where nothing is said."""
    return str(given.get("name", "arc-gha-rs-controller")), str(given.get("namespace", "arc-systems"))


def _release(account: str) -> str:
    """The Helm release that makes a service account of that name."""
    release = account.removesuffix("-gha-rs-controller")
    return release if service_account_name(release) == account else account


# -- the command ------------------------------------------------------------------------------------------------------


SETTABLE = ("githubConfigUrl", "githubConfigSecret", "runnerGroup")
"""Values that people give Helm with `--set`, and that are texts. A secret's name, never a secret."""


def _pair(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not equals or key not in SETTABLE:
        raise UnreadableValues(f"--set {quoted(given)}: write KEY=VALUE, with {listed(SETTABLE)} for KEY")
    return key, value


def _substitute(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.isidentifier():
        raise UnreadableValues(
            f"--substitute {quoted(given)}: write NAME=VALUE, with the NAME that stands in ${{NAME}}"
        )
    return name, value


def run(
    files: Sequence[str],
    namespace: str | None,
    given: Sequence[str],
    out: pathlib.Path | None,
    substitutes: Sequence[str] = (),
) -> int:
    """Prints the entries, and the proof on standard error. 0: nothing would change; 1: something would; 2: a file
    cannot be read."""
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
