"""From configuration to settings: one road for the engine's configuration and for the file alone."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from stacks import rules, wording
from stacks.fault import PROJECT, Fault, InvalidSettings, Path, nearest
from stacks.settings import Settings
from stacks.stack_file import StackFile, read

SECTIONS = frozenset(to_camel(name) for name in Settings.model_fields)
"""The configuration keys of the project, secrets aside."""


def from_file(path: pathlib.Path) -> tuple[Settings, StackFile]:
    """Settings of a stack file, with no engine.

    Raises InvalidSettings with every mistake.
    """
    file = read(path)
    settings = validated(file.values, file, file.secrets)
    _refuse_shared_labels(settings, file)
    return settings, file


def from_engine(root: pathlib.Path) -> Settings:
    """Settings of the stack that is running, from the engine's configuration; the stack file gives line numbers only.

    Raises pulumi.RunError with every mistake, one a line, and so ends the program without a traceback.
    """
    path = root / f"Pulumi.{pulumi.get_stack()}.yaml"
    try:
        file = read(path) if path.exists() else StackFile(path, pulumi.get_stack(), {}, frozenset(), {})
        values, secrets = _engine_values()
        settings = validated(values, file, secrets)
        missing = [
            file.fault(tuple(asked.split(".")), missing_secret(key))
            for key, asked in settings.secret_keys().items()
            if key not in secrets
        ]
        if missing:
            raise InvalidSettings(missing)
        _refuse_shared_labels(settings, file)
        return settings
    except InvalidSettings as invalid:
        raise pulumi.RunError(str(invalid)) from None


def missing_secret(key: str) -> str:
    """What to do about a secret that is not set."""
    return f"the secret '{key}' is not set: pulumi config set --secret {key}"


def _engine_values() -> tuple[dict[str, Any], frozenset[str]]:
    """The project's configuration as the engine hands it over: JSON texts, and which of them are secrets."""
    prefix = f"{PROJECT}:"
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
    """The settings that the values are.

    Raises InvalidSettings with every mistake: of single values, and across those values that are sound.
    """
    known = {key: value for key, value in values.items() if key in SECTIONS}
    faults = [file.fault((key,), "has to be plain; only passwords and keys are secrets") for key in secrets & SECTIONS]
    try:
        settings: Settings | None = Settings.model_validate(known)
    except ValidationError as error:
        details = error.errors(include_url=False)
        faults += [wording.fault(detail, file) for detail in details]
        settings = _sound_part(known, [detail["loc"] for detail in details])
    if settings is not None:
        faults += [file.fault(path, message, at=_present(path, file)) for path, message in rules.broken(settings)]
        secret_keys = frozenset(settings.secret_keys())
        faults += _stray_keys(values, secrets, secret_keys, file)
    if faults or settings is None:
        raise InvalidSettings(faults)
    return settings


def _refuse_shared_labels(settings: Settings, file: StackFile) -> None:
    """Raises InvalidSettings for labels that another stack of the project has on the same cluster: GitHub would give a
    job to either, and each stack would undo the other's changes."""
    faults = []
    for path in sorted(file.path.parent.glob("Pulumi.*.yaml")):
        if path == file.path:
            continue
        try:
            other = read(path).values
        except InvalidSettings:
            # It is told of its own mistakes when it is checked itself.
            continue
        cluster, runners = other.get("cluster"), other.get("runners")
        if isinstance(cluster, dict) and isinstance(runners, dict) and cluster.get("name") == settings.cluster.name:
            message = f"is also a label of {path.name}, on the same cluster '{settings.cluster.name}'; keep one"
            faults += [file.fault(("runners", label), message) for label in settings.runners.keys() & runners.keys()]
    if faults:
        raise InvalidSettings(faults)


def _stray_keys(
    values: Mapping[str, Any], secrets: frozenset[str], secret_keys: frozenset[str], file: StackFile
) -> Iterable[Fault]:
    for key in values:
        if key in secret_keys:
            yield file.fault((key,), f"is a secret in plain text; revoke it, and: pulumi config set --secret {key}")
        elif key not in SECTIONS:
            yield file.fault((key,), f"unknown key; {nearest(key, SECTIONS | secret_keys)}")
    for key in secrets - secret_keys - SECTIONS:
        yield file.fault((key,), f"no setting asks for this secret; {nearest(key, SECTIONS | secret_keys)}")


def _present(path: Path, file: StackFile) -> Path:
    """The path, or that of its parent where the file does not have it: a rule may speak of what is left out."""
    return path if file.written(path) is not None else path[:-1] if len(path) > 2 else path


def _sound_part(values: Mapping[str, Any], wrong: Iterable[tuple[int | str, ...]]) -> Settings | None:
    """The settings without the entries at fault, so that rules across settings still speak about the rest."""
    rest = json.loads(json.dumps(values, default=str))
    for loc in wrong:
        keys = [part for part in loc if part != "[key]"]
        while keys and not _is_entry(keys):
            keys.pop()
        container = rest
        for part in keys[:-1]:
            container = container.get(part, {}) if isinstance(container, dict) else {}
        if keys and isinstance(container, dict):
            container.pop(keys[-1], None)
    try:
        return Settings.model_validate(rest)
    except ValidationError:
        return None


def _is_entry(keys: list[int | str]) -> bool:
    """Whether the path names something that can be left out: an entry of a map, or a whole optional section."""
    maps = (["runners"], ["profiles"], ["projects"], ["cluster", "nodePools"])
    return keys[:-1] in maps or (len(keys) == 1 and keys[0] in ("arc", "devicePlugin", "charts", "acknowledged"))
