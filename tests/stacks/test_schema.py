"""The JSON Schemas that editors and other programs use: current, complete, and of one mind with the models."""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from gpufleet_stacks.settings import schema
from gpufleet_stacks.settings.stack_file import stack_files
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.document import PlanDocument
from tests.conftest import ROOT, Generated

SETTINGS_SCHEMA = ROOT / "stacks/gpufleet_stacks/settings/settings.schema.json"
PREVIEW_SCHEMA = ROOT / "tools/gpufleet_tools/plan/preview.schema.json"

CASES = ROOT / "tests" / "settings"
STACK_FILES = sorted([*stack_files(ROOT), *CASES.glob("*.ok.yaml")])

VALIDATOR = jsonschema.Draft202012Validator(schema.stack_file_schema())


def as_json(value: Any) -> Any:
    """YAML's values as an editor sees them: dates are text."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


def complaints(text: str) -> list[str]:
    """What an editor underlines."""
    return [error.message for error in VALIDATOR.iter_errors(as_json(yaml.safe_load(text)))]


# -- generated files --------------------------------------------------------------------------------------------------


@pytest.mark.generated
def test_the_schema_of_stack_files_is_current(generated: Generated) -> None:
    generated(SETTINGS_SCHEMA, schema.text(schema.stack_file_schema()))


@pytest.mark.generated
def test_the_schema_of_previews_is_current(generated: Generated) -> None:
    text = schema.text(schema.model_schema(PlanDocument, "serialization"))
    generated(PREVIEW_SCHEMA, text)


def test_a_generated_file_that_is_out_of_date_names_the_command(
    generated: Generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCEPT", raising=False)
    with pytest.raises(AssertionError, match=r"^stacks/.*/settings\.schema\.json is out of date; .*: make generate"):
        generated(SETTINGS_SCHEMA, "{}\n")


# -- form -------------------------------------------------------------------------------------------------------------


def test_the_schemas_are_schemas() -> None:
    for made in (schema.stack_file_schema(), schema.model_schema(PlanDocument, "serialization")):
        jsonschema.Draft202012Validator.check_schema(made)
        assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every named value of a schema, by its place."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from properties(item, f"{path}/{index}")
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("properties", "$defs"):
                yield from ((f"{path}/{key}", child) for key, child in value.items())
            yield from properties(value, f"{path}/{name}")


@pytest.mark.parametrize("path", [SETTINGS_SCHEMA, PREVIEW_SCHEMA], ids=lambda path: path.name)
def test_everything_is_explained(path: pathlib.Path) -> None:
    made = json.loads(path.read_text())
    explanations = {where: explanation(child, made["$defs"]) for where, child in properties(made)}
    assert len(explanations) > 20
    assert [where for where, text in explanations.items() if not text or "\n" in text] == []


def explanation(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What an editor shows of a value: its own description, or else that of what it refers to."""
    target = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else {}
    return str(node.get("description", target.get("description", "")))


# -- agreement with the models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.name)
def test_a_sound_file_pleases_the_editor(path: pathlib.Path) -> None:
    assert complaints(path.read_text()) == []


SHAPE = [
    "cluster-kind-unknown",
    "config-is-a-list",
    "config-url",
    "credentials-kind-missing",
    "credentials-kind-unknown",
    "empty",
    "float-version",
    "fraction-for-number",
    "gpus-negative",
    "label-illegal",
    "label-too-long",
    "list-for-mapping",
    "mapping-for-list",
    "max-zero",
    "mirror-relative",
    "missing-key",
    "missing-section",
    "no-nodes",
    "no-projects",
    "node-has-too-many-gpus",
    "node-label-illegal",
    "null-for-number",
    "null-for-section",
    "number-for-text",
    "partition-unknown",
    "quantity",
    "secret-amid-other-settings",
    "secret-among-credentials",
    "secret-in-a-url",
    "secret-in-plain-text",
    "section-is-a-secret",
    "text-for-number",
    "text-for-section",
    "text-for-switch",
    "unknown-file-key",
    "unknown-key-far",
    "unknown-key-near",
    "unknown-section",
    "unknown-setting-of-another-kind",
    "volume-with-two-sources",
    "word-for-number",
]


@pytest.mark.parametrize("name", SHAPE)
def test_the_editor_sees_what_is_wrong_with_the_shape(name: str) -> None:
    assert complaints((CASES / f"{name}.error.yaml").read_text())


def test_rules_across_settings_are_left_to_the_command() -> None:
    """The schema refuses nothing that only the cluster as a whole makes wrong."""
    for name in ("gpus-do-not-divide", "min-above-max", "unknown-project", "address-twice", "nps4-without-cpx"):
        assert complaints((CASES / f"{name}.error.yaml").read_text()) == []


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("gpu-runners:ml-token", {"secure": "v1:abc"}, True),
        ("gpu-runners:ml-privateKey", {"secure": "v1:abc"}, True),
        ("gpu-runners:kubeconfig", {"secure": "v1:abc"}, True),
        ("gpu-runners:ml-token", "plain", False),
        ("gpu-runners:ml-token", {"secure": "v1:abc", "more": 1}, False),
        ("gpu-runners:password", {"secure": "v1:abc"}, False),
        ("gpu-runners:charts", {"secure": "v1:abc"}, False),
        ("aws:region", "eu-west-1", True),
        ("kubernetes:kubeconfig", {"secure": "v1:abc"}, True),
        ("pulumi:tags", {"team": "ml"}, True),
    ],
)
def test_which_configuration_keys_are_allowed(key: str, value: Any, allowed: bool) -> None:
    content = yaml.safe_load((CASES / "smallest.ok.yaml").read_text())
    content["config"][key] = value
    assert VALIDATOR.is_valid(content) is allowed


@pytest.mark.parametrize("name", stack.names(ROOT))
def test_editors_find_the_schema(name: str) -> None:
    first = (ROOT / f"Pulumi.{name}.yaml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SETTINGS_SCHEMA.relative_to(ROOT)}"


@pytest.mark.parametrize("name", stack.names(ROOT))
def test_a_preview_has_the_form_of_its_schema(name: str) -> None:
    from gpufleet_tools.check import findings
    from gpufleet_tools.plan.document import document

    previewed = stack.read(ROOT, name)
    report = findings.report(previewed.settings, previewed.file, datetime.date(2027, 1, 1))
    made = json.loads(document(previewed.plan(), report).model_dump_json())
    jsonschema.validate(made, json.loads((PREVIEW_SCHEMA).read_text()))
    assert made["resources"]
