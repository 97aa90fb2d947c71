"""The catalogue of labels: what it says of each, and that its forms can be read by whoever wants them."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
from html.parser import HTMLParser

import pytest
import yaml

from gpufleet.arc import runner_releases
from gpufleet_tools.labels import catalogue as labels
from gpufleet_tools.labels.catalogue import LabelEntry
from gpufleet_tools.labels.page import html
from gpufleet_tools.labels.runner_version import runner_words
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
    assert (entry.docker, entry.requires_container) == ("sidecar", False)
    assert (entry.at_most, entry.guaranteed, entry.limited_by) == (4, 0, ["mi300-gpu-2"])
    assert (entry.architecture, entry.capacity, entry.sharing, entry.runner_group) == ("amd64", [], None, "gpus")
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
    assert runner_words(None, None) == "unknown"


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
        "| runs-on | GPUs | CPU | memory | architecture | nodes | containers | runner | jobs at once | jobs of"
        " | cluster | ask | status |",
        "|" + " --- |" * 13,
        "| `{group: gpus, labels: mi300-gpu-1}`, `mi300`, `gpu` | 1 AMD MI300X | 12 | 200Gi | amd64 | machines | Docker"
        " | 2.336.0, no jobs from 2026-11-05 | 4, 0 guaranteed | github.com/example/models | lab"
        " | models team, #models-ci | served |",
        "| `{group: gpus, labels: mi300-gpu-2}`, `mi300`, `gpu` | 2 AMD MI300X | 24 | 400Gi | amd64 | machines | Docker"
        " | 2.336.0, no jobs from 2026-11-05 | 4, 2 guaranteed | github.com/example/models | lab"
        " | models team, #models-ci | **deprecated**, served until 2027-06-30; use `mi300-gpu-1` |",
    ]


def test_an_entry_on_eks_says_what_nodes_and_shares_its_jobs_get(project: MakeProject) -> None:
    found = entries(project({"dev": (ROOT / "Pulumi.dev.yaml").read_text()}))
    assert {entry.label: (entry.sharing, entry.capacity) for entry in found.values()} == {
        "linux-cpu-4": (None, ["on-demand"]),
        "linux-nvidia-gpu": ("time slicing", ["on-demand", "spot"]),
    }
    assert {entry.architecture for entry in found.values()} == {"amd64"}


@pytest.mark.parametrize(
    ("docker", "env", "expected", "words"),
    [
        ("docker: {kind: kubernetes-novolume}", "", ("kubernetes-novolume", True), "as pods, required"),
        (
            "docker: {kind: kubernetes-novolume}",
            'env: {ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER: "false"}',
            ("kubernetes-novolume", False),
            "as pods",
        ),
        ("docker: {kind: sidecar}", "", ("sidecar", False), "Docker"),
    ],
)
def test_an_entry_says_how_its_jobs_run_containers(
    docker: str, env: str, expected: tuple[str, bool], words: str, project: MakeProject
) -> None:
    text = (ROOT / "tests/settings/smallest.ok.yaml").read_text()
    text = text.replace("      max: ", "      docker: true\n      profile: pods\n      max: ")
    assert "docker: true" in text
    text += f"  gpu-runners:profiles:\n    pods:\n      {docker}\n" + (f"      {env}\n" if env else "")
    (entry, *_) = [entry for entry in entries(project({"small": text})).values() if entry.docker]
    assert (entry.docker, entry.requires_container) == expected
    assert labels.container_words(entry) == words


# -- the page ---------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The texts of a page, and the elements that are open; every element is closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_has_every_label_and_needs_nothing_else(project: MakeProject, gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", project({"lab": EVERY}), "labels", "--format", "html")
    assert (ended.code, ended.err) == (0, "")
    page = Page(ended.out)
    text = " ".join(" ".join(page.texts).split())
    assert "2 labels of lab." in text
    for words in (
        "GPUs 1 AMD MI300X CPU, memory 12 cores, 200Gi Architecture amd64 Nodes machines of the cluster",
        "At once at most 4 jobs; jobs of mi300-gpu-2 can leave no room for any",
        "Deprecated, served until 2027-06-30; use mi300-gpu-1",
        "Ask models team, #models-ci",
    ):
        assert words in text
    assert {name for name, _ in page.attributes} == {"lang", "charset", "name", "content", "class", "href"}
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import", ended.out)


def test_the_page_shows_any_text_as_it_is(project: MakeProject) -> None:
    found = labels.catalogue([stack.read(project({"lab": EVERY}), "lab")])
    evil = "</style><script>alert(1)</script>\"'&<b>"
    texts = ("label", "stack", "cluster", "runner_group", "accelerator", "owner", "contact", "use", "runner_version")
    update: dict[str, object] = dict.fromkeys(texts, evil)
    update |= {"config_url": f"https://{evil}", "limited_by": [evil], "status": "deprecated"}
    entry = found.labels[0].model_copy(update=update)
    made = html(labels.Catalogue.model_construct(labels=[entry]))
    assert "script" not in {*Page(made).open}
    assert "<script" not in made
    assert "".join(Page(made).texts).count("alert(1)") >= len(texts)


def test_a_page_of_no_labels_is_a_page() -> None:
    assert "0 labels" in " ".join(Page(html(labels.Catalogue(labels=[]))).texts)


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
    assert yaml.safe_load(text) == {"self-hosted-runner": {"labels": ["gpu", "mi300", "mi300-gpu-1", "mi300-gpu-2"]}}


def test_a_broken_stack_is_refused(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": EVERY, "broken": EVERY.replace("max: 4", "max: 0")})
    ended = gpufleet("-C", root, "labels")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Pulumi.broken.yaml:")
