"""`gpufleet import`: scale sets of others as entries of a stack file, with the proof that they behave the same."""

from __future__ import annotations

import itertools
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
from gpufleet_stacks.runners import Place, scale_set_args
from gpufleet_stacks.settings import wording
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.problems import NAMESPACE, SET_SECRET, dotted, listed, quoted
from gpufleet_stacks.settings.stack_file import StackFile
from gpufleet_tools.imports.arc_values import NO_SCALE_SET, GithubSecret, Passed, ScaleSet, UnreadableValues, read
from gpufleet_tools.imports.entries import Entry, ImportedRunner, imported
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
    """Whether anything that a runner does would change."""

    def text(self) -> str:
        """The entries as YAML that goes below `config:`."""
        sections = {"arc": self.arc, "projects": self.projects, "profiles": self.profiles, "runners": self.runners}
        config = {f"{NAMESPACE}:{name}": section for name, section in sections.items() if section}
        text: str = yaml.safe_dump({"config": config}, sort_keys=False, allow_unicode=True, width=120)
        return text


def read_all(files: Sequence[str], namespace: str | None, more: Mapping[str, str]) -> Import:
    """Imports files, each `PATH` or `LABEL=PATH`. `more` are values of the chart that are not in the files.

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
            complete = replace(one, values={**one.values, **more})
            secret = _named(complete, secrets, namespace)
            _add(found, complete, label, namespace, secret)
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


def _add(
    found: Import, scale_set: ScaleSet, asked: str | None, namespace: str | None, secret: GithubSecret | None
) -> None:
    label = asked or scale_set.label or _word(pathlib.Path(scale_set.origin).stem)
    if label in found.runners:
        raise UnreadableValues(f"{scale_set.origin}: label '{label}' is already that of another scale set; LABEL=PATH")
    url = str(scale_set.values.get("githubConfigUrl") or "").rstrip("/")
    own = scale_set.namespace or namespace or (secret and secret.namespace) or _word(url.rpartition("/")[2]) or label
    runner = imported(scale_set, label, own, secret)
    project = _shared(found.projects, _word(url.rpartition("/")[2]) or label, runner.project)
    entry: Entry = {"project": project}
    if runner.profile:
        entry["profile"] = _shared(found.profiles, project, runner.profile)
    found.runners[label] = entry | runner.runner
    where = f"{scale_set.origin}: {label}"
    if not asked and not scale_set.label:
        found.lines.append(f"{where}: the label is the file's name; say another with LABEL={scale_set.origin}")
    found.lines += [f"{where}: {note}" for note in runner.notes]
    if runner.secret:
        file = f"{secret.origin}, Secret {secret.name}" if secret else "the file"
        there = f"credentials are in {file}; revoke them, then: " if scale_set.values.get("githubConfigSecret") else ""
        found.lines.append(f"{where}: {there}{SET_SECRET}{project}-{runner.secret}")
    differences = list(_proof(found, runner, project))
    if secret:
        differences += [f"differs: Secret {secret.name}: {key} -> nothing" for key in secret.further]
    if scale_set.label and scale_set.label != label:
        differences.insert(0, f"differs: label: {quoted(scale_set.label)} -> {quoted(label)}")
    found.differs = found.differs or bool(differences)
    found.lines += [f"{where}: {line}" for line in differences] or [f"{where}: the same values come out again"]


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


def _proof(found: Import, runner: ImportedRunner, project: str) -> Iterator[str]:
    """What would change: the chart's values before, against those that the program makes of the entries."""
    try:
        after = _rendered(found, runner, project)
    except ValidationError as error:
        file = StackFile(pathlib.Path(), "import", {}, frozenset(), {})
        for detail in error.errors(include_url=False):
            problem = wording.problem(detail, BareMetalSettings, file)
            yield f"cannot be expressed: {dotted(problem.path)}: {problem.message}"
        return
    for difference in differences(runner.values, after):
        if not _is_the_stack_s(difference, found):
            yield f"differs: {difference}"


def _is_the_stack_s(difference: Difference, found: Import) -> bool:
    """Whether a whole stack decides it, and the file says nothing of it: then nothing of the runner's is lost."""
    if difference.before is not ABSENT:
        return False
    return difference.path in ("controllerServiceAccount", "listenerMetrics")


def _rendered(found: Import, runner: ImportedRunner, project: str) -> dict[str, Any]:
    """The chart's values that the program makes of the entries, on a cluster that has what they ask for."""
    account = runner.values.get("controllerServiceAccount")
    controller, section = _controller(account if isinstance(account, dict) else {})
    if section:
        found.arc = found.arc or section
    label, entry = runner.label, found.runners[runner.label]
    settings = BareMetalSettings.model_validate(
        {
            "cluster": _cluster(runner.gpu_resource),
            "devicePlugin": {"resourceNaming": "single" if runner.gpu_resource == "amd.com/gpu" else "mixed"},
            "projects": {project: found.projects[project]},
            "profiles": {name: found.profiles[name] for name in [entry.get("profile")] if name},
            "runners": {label: entry},
        }
    )
    described = settings.projects[project]
    credentials = described.credentials
    reference = ProjectReference(
        config_url=described.config_url,
        namespace=described.namespace,
        credentials_secret=credentials.secret_name,
        runner_group=described.runner_group,
    )
    place = Place(gpu_resource=settings.gpu_resource(settings.pool_name(settings.runners[label])))
    return scale_set_values(scale_set_args(label, settings, place, controller, reference))


def _controller(account: Mapping[str, Any]) -> tuple[ControllerReference, Entry]:
    """The controller that a service account is of, and the section `arc` that makes one of that name."""
    name, namespace = str(account.get("name", "arc-gha-rs-controller")), str(account.get("namespace", "arc-systems"))
    release = name.removesuffix("-gha-rs-controller")
    release = release if service_account_name(release) == name else name
    section = {"namespace": namespace} if namespace != "arc-systems" else {}
    section |= {"release": release} if release != "arc" else {}
    reference = ControllerReference(
        service_account=service_account_name(release), namespace=namespace, listener_metrics=listener_metrics()
    )
    return reference, section


def _cluster(gpu_resource: str) -> Entry:
    """A cluster whose GPUs have that name; what else it has plays no part in a runner's values."""
    compute, _, memory = gpu_resource.removeprefix("amd.com/").upper().partition("_")
    parted = {"compute": compute, "memory": memory} if memory else {}
    pool = {
        "accelerator": {"vendor": "amd", "model": "any", "count": 8, "partition": parted},
        "allocatable": {"cpu": 1, "memory": "1Gi", "ephemeralStorage": "1Gi"},
        "nodes": {"any": {"address": "any"}},
    }
    return {"kind": "bareMetal", "name": "any", "kubeconfig": {"kind": "secret"}, "nodePools": {"any": pool}}


# -- the command ------------------------------------------------------------------------------------------------------


SETTABLE = ("githubConfigUrl", "githubConfigSecret", "runnerGroup")
"""Values that people give Helm with `--set`, and that are texts. A secret's name, never a secret."""


def _pair(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not equals or key not in SETTABLE:
        raise UnreadableValues(f"--set {quoted(given)}: write KEY=VALUE, with {listed(SETTABLE)} for KEY")
    return key, value


def run(files: Sequence[str], namespace: str | None, given: Sequence[str], out: pathlib.Path | None) -> int:
    """Prints the entries, and the proof on standard error. 0: nothing would change; 1: something would; 2: a file
    cannot be read."""
    try:
        found = read_all(files, namespace, dict(_pair(pair) for pair in given))
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
