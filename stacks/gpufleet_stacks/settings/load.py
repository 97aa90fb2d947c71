"""Validation of configuration: the same for the engine's configuration and for the file alone."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pulumi
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from gpufleet.problem import Path
from gpufleet_stacks.settings import wording
from gpufleet_stacks.settings.kinds import model_of
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import (
    NAMESPACE,
    SET_SECRET,
    InvalidSettings,
    StackFileProblem,
    listed,
    near,
    nearest,
)
from gpufleet_stacks.settings.rules import runners as rules
from gpufleet_stacks.settings.stack_file import StackFile, read, stack_files


def from_file(path: pathlib.Path) -> tuple[Settings, StackFile]:
    """Return the settings of a stack file, without an engine.

    Raise InvalidSettings with every problem.
    """
    file = read(path)
    settings = validated(file.values, file, file.secrets)
    _refuse(_shared_labels(settings, file))
    return settings, file


def from_engine(root: pathlib.Path) -> Settings:
    """Return the settings of the running stack from the engine's configuration. The stack file only provides line
    numbers.

    Raise pulumi.RunError with one line for each problem; it ends the program without a traceback.
    """
    path = root / f"Pulumi.{pulumi.get_stack()}.yaml"
    try:
        values, secrets = _engine_values()
        file = read(path) if path.exists() else StackFile(path, pulumi.get_stack(), {}, frozenset(), {})
        settings = validated(values, file, secrets)
        missing = [
            file.problem(tuple(setting.split(".")), missing_secret(key))
            for key, setting in settings.secret_keys().items()
            if key not in secrets
        ]
        _refuse([*missing, *_shared_labels(settings, file)])
        return settings
    except InvalidSettings as invalid:
        raise pulumi.RunError(str(invalid)) from None


def missing_secret(key: str) -> str:
    """Return the message about a secret that is not set."""
    return f"the secret '{key}' is not set; set it: {SET_SECRET}{key}"


def _engine_values() -> tuple[dict[str, Any], frozenset[str]]:
    """Return the settings from the engine's configuration, parsed from JSON, and the keys of secrets."""
    prefix = f"{NAMESPACE}:"
    texts = pulumi.runtime.config.CONFIG.get() or pulumi.runtime.config.get_config_env()
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    secrets = frozenset(key for key in own if pulumi.runtime.is_config_secret(f"{prefix}{key}"))
    return {key: _parsed(text) for key, text in own.items() if key not in secrets}, secrets


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def validated(values: Mapping[str, Any], file: StackFile, secrets: frozenset[str]) -> Settings:
    """Return the validated settings.

    Raise InvalidSettings with every problem: of the text, of single values, and between those values that are valid.
    """
    model = model_of(values)
    sections = _sections(model)
    known = {key: value for key, value in values.items() if key in sections}
    misplaced = [
        file.problem((key,), "is encrypted, but a setting must be plain text; set it without --secret")
        for key in secrets & sections
    ]
    settings, fields = _validated(known, model, file)
    valid, withheld = (settings, frozenset[Path]()) if settings else _valid_part(known, fields)
    problems = [*fields, *_stray_keys(values, sections, file)]
    if valid is not None:
        broken = rules.problems(valid, withheld)
        problems += [
            file.problem(each.path, each.message, each.code) for each in broken if not _within(each.path, withheld)
        ]
        problems += _stray_secrets(secrets - sections, valid, withheld, file)
    # A problem of the text explains all other problems at the same path.
    certain = [*file.problems, *misplaced]
    faulty = {problem.path for problem in certain}
    problems = [problem for problem in problems if not _within(problem.path, faulty)]
    if certain or problems or settings is None:
        raise InvalidSettings([*certain, *problems])
    return settings


def _sections(model: type[Settings]) -> frozenset[str]:
    """Return the configuration keys of a kind of stack, without those of secrets."""
    return frozenset(to_camel(name) for name in model.model_fields)


def _within(path: Path, entries: Collection[Path]) -> bool:
    return any(path[:depth] in entries for depth in range(1, len(path) + 1))


def _refuse(problems: Iterable[StackFileProblem]) -> None:
    found = list(problems)
    if found:
        raise InvalidSettings(found)


def _validated(
    values: Mapping[str, Any], model: type[Settings], file: StackFile
) -> tuple[Settings | None, list[StackFileProblem]]:
    """Return the settings, or None with the problems of single values."""
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        return None, [wording.problem(detail, model, file) for detail in error.errors(include_url=False)]


def _shared_labels(settings: Settings, file: StackFile) -> Iterator[StackFileProblem]:
    """Yield labels that another stack of the project defines on the same cluster. GitHub would give jobs to either, and
    each stack would undo the other's changes."""
    for path in stack_files(file.path.parent):
        if path == file.path:
            continue
        try:
            other = read(path).values
        except InvalidSettings:
            # Its problems are reported when that stack is checked.
            continue
        cluster, runners = other.get("cluster"), other.get("runners")
        if isinstance(cluster, dict) and isinstance(runners, dict) and cluster.get("name") == settings.cluster.name:
            message = f"is also a label of {path.name}, on the same cluster '{settings.cluster.name}'; keep one"
            for label in settings.runners.keys() & runners.keys():
                yield file.problem(("runners", label), message)


# -- keys -------------------------------------------------------------------------------------------------------------


_SECTIONS_OF = {"devicePlugin": "bareMetal", "nvidiaPlugin": "eks", "efaPlugin": "eks"}
"""Sections for one kind of cluster, with that kind."""


def _stray_keys(values: Mapping[str, Any], sections: Collection[str], file: StackFile) -> Iterator[StackFileProblem]:
    """Yield configuration keys that are not settings."""
    for key in values.keys() - sections:
        if key in _SECTIONS_OF:
            message = f"is for clusters of kind {_SECTIONS_OF[key]} only; remove it"
        elif key == "kubeconfig" or key.startswith("kubespray-") or key.endswith(("-token", "-privateKey")):
            message = f"is a secret in plain text; revoke it, then set a new one: {SET_SECRET}{key}"
        else:
            message = f"unknown key; {nearest(key, sections)}"
        yield file.problem((key,), message)
    for key in file.foreign:
        namespace, _, name = key.partition(":")
        # A project may have its own key with the name of a setting, in addition to the setting.
        mistaken = namespace == file.project and name not in values
        if name in sections and (mistaken or near(namespace, [NAMESPACE])):
            yield file.problem((key,), f"unknown key; did you mean '{NAMESPACE}:{name}'?")


def _stray_secrets(
    secrets: frozenset[str], settings: Settings, withheld: Iterable[Path], file: StackFile
) -> Iterator[StackFileProblem]:
    """Yield secrets that no setting uses."""
    sections = ("kubeconfig", "ssh", "kubespray", "nvidiaContainerToolkit", "nodePools")
    users = (("projects",), *(("cluster", section) for section in sections))
    if any(entry[: len(section)] == section[: len(entry)] for entry in withheld for section in users):
        # Settings that may use them have problems themselves.
        return
    used = settings.secret_keys()
    for key in secrets - used.keys():
        others = f" (used: {listed(sorted(used), 'and')})" if used else ""
        remove = f"pulumi config rm {NAMESPACE}:{key}"
        yield file.problem((key,), f"no setting uses this secret{others}; remove it: {remove}")


# -- valid parts ------------------------------------------------------------------------------------------------------

_CLUSTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bareMetal": (
        {"kind": "bareMetal", "name": "stand-in", "kubeconfig": {"kind": "secret"}, "nodePools": {}},
        {
            "accelerator": {"vendor": "amd", "model": "stand-in", "count": 1},
            "allocatable": {"cpu": 1, "memory": "1Gi", "ephemeralStorage": "1Gi"},
            "nodes": {"stand-in": {"address": "stand-in"}},
        },
    ),
    "eks": (
        {
            "kind": "eks",
            "name": "stand-in",
            "region": "us-east-1",
            "account": "000000000000",
            "kubernetesVersion": "1.35",
            "network": {"kind": "own", "zones": ["us-east-1a", "us-east-1b"]},
            "addons": {},
            "nodePools": {},
        },
        {"instances": {"gpuCounts": []}, "limits": {}, "amis": [{"alias": "al2023@v20260512"}]},
    ),
}
"""Stand-ins for a cluster and a pool with problems, by kind."""
_PROJECT = {
    "configUrl": "https://github.com/stand-in",
    "namespace": "stand-in",
    "credentials": {"kind": "existingSecret", "secretName": "stand-in"},
}


def _valid_part(
    values: Mapping[str, Any], problems: Iterable[StackFileProblem]
) -> tuple[Settings | None, frozenset[Path]]:
    """Return the settings without the entries that have problems, and the paths of those entries. Rules can then check
    the rest. Stand-ins replace required entries."""
    withheld = frozenset(_entry(problem.path) for problem in problems)
    rest = {section: _without(value, withheld, (section,)) for section, value in values.items()}
    rest = {section: value for section, value in rest.items() if (section,) not in withheld}
    valid = rest.get("cluster", {})
    stand_in, pool = _CLUSTERS.get(valid.get("kind"), _CLUSTERS["bareMetal"])
    cluster = {**stand_in, **valid}
    cluster["nodePools"] = cluster["nodePools"] or {rules.STAND_IN: pool}
    rest |= {"cluster": cluster, "projects": rest.get("projects") or {rules.STAND_IN: _PROJECT}}
    rest.setdefault("runners", {})
    try:
        return model_of(rest).model_validate(rest), withheld
    except ValidationError:
        return None, withheld


def _entry(path: Path) -> Path:
    """Return the smallest part around a path that can be omitted from the settings."""
    if path[:2] == ("cluster", "nodePools"):
        return path[:3]
    return path[:2] if path[0] in ("cluster", "projects", "profiles", "runners") else path[:1]


def _without(value: Any, withheld: frozenset[Path], path: Path) -> Any:
    """Return the value without the withheld entries of sections and pools."""
    if not isinstance(value, dict) or len(path) > 2:
        return value
    kept = {key: entry for key, entry in value.items() if (*path, key) not in withheld}
    return {key: _without(entry, withheld, (*path, key)) for key, entry in kept.items()}
