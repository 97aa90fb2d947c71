"""The JSON document of the doctor, its schema, and the table of CRDs."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tarfile
from typing import Any

import jsonschema
import pytest
import yaml

from gpufleet_stacks.settings import schema
from gpufleet_tools.doctor import crds
from gpufleet_tools.doctor.diagnosis import Diagnosis, findings
from gpufleet_tools.doctor.document import DiagnosisDocument, document
from gpufleet_tools.doctor.reading import Unread
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.doctor.view import View
from gpufleet_tools.sandbox.rehearsal import CHARTS
from tests.conftest import ROOT, Generated
from tests.tools.doctor.recorded import mi300, snapshot

SCHEMA = ROOT / "tools/gpufleet_tools/doctor/doctor.schema.json"


@pytest.mark.generated
def test_the_schema_is_current(generated: Generated) -> None:
    generated(SCHEMA, schema.text(schema.model_schema(DiagnosisDocument, "serialization")))


def test_the_document_is_what_the_schema_says() -> None:
    of = snapshot()
    of.lists["runner sets"][0]["spec"]["maxRunners"] = 9
    unread = (Unread("list", "nodes", "", "nodes and their GPUs"),)
    view = View(mi300(), type(of)(**{**vars(of), "unread": unread}), Target())
    content = json.loads(document(Diagnosis("https://a", view, tuple(findings(view)))).model_dump_json())
    jsonschema.validate(content, json.loads(SCHEMA.read_text()))
    assert [each["label"] for each in content["scaleSets"]] == ["linux-mi300-gpu-2", "mi300-cluster"]
    runners = {"idle": 1, "busy": 1, "pending": 0, "failed": 0, "terminating": 0}
    assert content["scaleSets"][1]["runners"] == runners
    assert {each["name"] for each in content["findings"]} == {"size-differs", "listener-size"}
    assert content["unread"][0] == {
        "verb": "list",
        "resource": "nodes",
        "namespace": "",
        "purpose": "nodes and their GPUs",
    }


def test_every_finding_is_explained() -> None:
    judges = (ROOT / "tools/gpufleet_tools/doctor/judgement").glob("*.py")
    in_code = {name for file in judges for name in re.findall(r'\bname="([a-z-]+)"', file.read_text())}
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert len(in_code) > 30
    assert in_code <= {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}


def definitions(chart: pathlib.Path) -> dict[str, list[str]]:
    """The fields of each CRD in a chart."""
    found = {}
    with tarfile.open(chart) as archive:
        for member in archive.getmembers():
            if "/crds/" in member.name and (file := archive.extractfile(member)):
                definition: Any = yaml.safe_load(file)
                found[definition["spec"]["names"]["plural"]] = crds.fields(definition)
    return dict(sorted(found.items()))


@pytest.mark.generated
@pytest.mark.skipif(CHARTS not in os.environ, reason=f"ARC's charts are not here: {CHARTS} is not set")
def test_the_table_of_crds_is_that_of_the_charts(generated: Generated) -> None:
    versions = {"0.13": "0.13.1", "0.14": "0.14.2"}
    folder = pathlib.Path(os.environ[CHARTS])
    table = {
        minor: definitions(folder / f"gha-runner-scale-set-controller-{version}.tgz")
        for minor, version in versions.items()
        if (folder / f"gha-runner-scale-set-controller-{version}.tgz").exists()
    }
    generated(crds.TABLE, json.dumps({**crds.known(), **table}, indent=1) + "\n")


def test_versions_of_crds_are_told_apart() -> None:
    for version, own in crds.known().items():
        assert crds.version_of(own) == version
        assert crds.missing(own, f"{version}.0") == []
        assert own.keys() == {*crds.PLURALS}
    assert "autoscalingrunnersets: spec.runnerScaleSetLabels" in crds.missing(crds.known()["0.13"], "0.14.2")
    assert crds.missing(crds.known()["0.13"], "9.9.9") == [], "an unknown version"
