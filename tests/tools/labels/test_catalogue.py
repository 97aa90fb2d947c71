"""The catalogue of labels: what it says of each, and that its forms can be read by whoever wants them."""

from __future__ import annotations

import datetime
import json
import pathlib

import yaml

from gpufleet.arc import runner_releases
from gpufleet_tools.labels import catalogue as labels
from gpufleet_tools.labels.catalogue import LabelEntry
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, Gpufleet, MakeProject

EVERY = (ROOT / "tests/settings/every-setting.ok.yaml").read_text()
PARTITIONED = (ROOT / "tests/settings/partitioned.ok.yaml").read_text()


def entries(root: pathlib.Path) -> dict[str, LabelEntry]:
    found = labels.catalogue(stack.read(root, name) for name in stack.names(root))
    return {f"{entry.stack}/{entry.label}": entry for entry in found.labels}


def test_every_label_of_every_stack_is_in_it(project: MakeProject) -> None:
    root = project({"lab": EVERY, "other": EVERY.replace("name: lab", "name: other")})
    assert list(entries(root)) == [
        "lab/mi300-gpu-1",
        "other/mi300-gpu-1",
        "lab/mi300-gpu-2",
        "other/mi300-gpu-2",
    ]


def test_an_entry_says_what_a_job_gets_and_whom_to_ask(project: MakeProject) -> None:
    entry = entries(project({"lab": EVERY}))["lab/mi300-gpu-1"]
    assert (entry.gpus, entry.accelerator, entry.cpu, entry.memory) == (1, "AMD MI300X", "12000m", "200Gi")
    assert (entry.docker, entry.at_most, entry.runner_group) == (True, 4, "gpus")
    assert (entry.owner, entry.contact, entry.cluster) == ("models team", "#models-ci", "lab")
    assert (entry.status, entry.until, entry.use) == ("served", None, None)
    assert (entry.runner_version, entry.no_jobs_from) == ("2.336.0", datetime.date(2026, 11, 5))


def test_enterprise_server_gives_jobs_to_old_runners(project: MakeProject) -> None:
    entry = entries(project({"lab": EVERY.replace("//github.com", "//github.example.com")}))["lab/mi300-gpu-1"]
    assert (entry.runner_version, entry.no_jobs_from) == ("2.336.0", None)


def test_the_default_image_shows_its_version_and_an_image_of_unknown_contents_none(project: MakeProject) -> None:
    newest = runner_releases.known().default.version
    default = entries(project({"small": (ROOT / "tests/settings/smallest.ok.yaml").read_text()}))
    assert {entry.runner_version for entry in default.values()} == {newest}
    assert labels.runner_words(None, None) == "unknown"


def test_a_deprecated_label_says_until_when_and_what_instead(project: MakeProject) -> None:
    entry = entries(project({"lab": EVERY}))["lab/mi300-gpu-2"]
    assert (entry.status, entry.until, entry.use) == ("deprecated", datetime.date(2027, 6, 30), "mi300-gpu-1")


def test_partitions_are_told_from_whole_gpus(project: MakeProject) -> None:
    accelerators = {entry.accelerator for entry in entries(project({"parted": PARTITIONED})).values()}
    assert any(accelerator and accelerator.endswith("(CPX)") for accelerator in accelerators)


def test_markdown(project: MakeProject, gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", project({"lab": EVERY}), "labels")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "| runs-on | GPUs | CPU | memory | Docker | runner | at most | jobs of | cluster | ask | status |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `{group: gpus, labels: mi300-gpu-1}` | 1 AMD MI300X | 12 | 200Gi | yes | 2.336.0, no jobs from 2026-11-05"
        " | 4 | github.com/example/models | lab | models team, #models-ci | served |",
        "| `{group: gpus, labels: mi300-gpu-2}` | 2 AMD MI300X | 24 | 400Gi | yes | 2.336.0, no jobs from 2026-11-05"
        " | 4 | github.com/example/models | lab | models team, #models-ci"
        " | **deprecated**, served until 2027-06-30; use `mi300-gpu-1` |",
    ]


def test_json_is_the_catalogue(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": EVERY})
    read = json.loads(gpufleet("-C", root, "labels", "--format", "json").out)
    assert [entry["label"] for entry in read["labels"]] == ["mi300-gpu-1", "mi300-gpu-2"]
    assert read["labels"][1]["until"] == "2027-06-30"
    assert labels.Catalogue.model_json_schema()["$defs"]["LabelEntry"]["required"]
    assert set(read["labels"][0]) == set(labels.Catalogue.model_json_schema()["$defs"]["LabelEntry"]["properties"])


def test_actionlint_has_each_label_once(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": EVERY, "other": EVERY.replace("name: lab", "name: other")})
    text = gpufleet("-C", root, "labels", "--format", "actionlint").out
    assert yaml.safe_load(text) == {"self-hosted-runner": {"labels": ["mi300-gpu-1", "mi300-gpu-2"]}}


def test_a_broken_stack_is_refused(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": EVERY, "broken": EVERY.replace("max: 4", "max: 0")})
    ended = gpufleet("-C", root, "labels")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Pulumi.broken.yaml:")
