"""Findings: when each is raised and when not, and how long an acknowledgement holds."""

from __future__ import annotations

import datetime
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet.arc import runner_releases
from gpufleet_stacks.settings import load
from gpufleet_tools.check import findings, pod_findings
from gpufleet_tools.check.findings import Finding, Report
from gpufleet_tools.plan import stack
from tests.conftest import PYTHONPATH, ROOT

TODAY = datetime.date(2027, 1, 15)

SMALLEST = (ROOT / "tests" / "settings" / "smallest.ok.yaml").read_text()

Change = Callable[[dict[str, Any]], None]


def settled(content: dict[str, Any]) -> None:
    """Changes nothing."""


def reported(folder: pathlib.Path, change: Change = settled, on: datetime.date = TODAY) -> Report:
    """The report on the smallest stack with a change."""
    content = yaml.safe_load(SMALLEST)
    sections = {key.removeprefix("gpu-runners:"): value for key, value in content["config"].items()}
    change(sections)
    config = {f"gpu-runners:{key}": value for key, value in sections.items()}
    text = yaml.dump({"config": config}, Dumper=yaml.CSafeDumper)
    path = folder / "Pulumi.lab.yaml"
    path.write_text(text)
    return findings.report(*load.from_file(path), on)


def found(folder: pathlib.Path, change: Change) -> list[tuple[str, str, str]]:
    """Name, severity and path of the open findings."""
    return [
        (one.name, one.severity, (at.line and ".".join(map(str, at.path))) or "")
        for one, at in reported(folder, change).open
    ]


def runner(**fields: Any) -> Change:
    """Sets fields of the runner."""

    def change(sections: dict[str, Any]) -> None:
        sections["runners"]["mi300-gpu-2"] |= fields

    return change


def pool(**fields: Any) -> Change:
    """Sets fields of the node pool."""

    def change(sections: dict[str, Any]) -> None:
        sections["cluster"]["nodePools"]["mi300x"] |= fields

    return change


def profile(**fields: Any) -> Change:
    """Gives the runner a profile; an image of its own holds a runner that is current."""

    def change(sections: dict[str, Any]) -> None:
        current = {"runnerVersion": runner_releases.known().newest.version} if "image" in fields else {}
        sections["profiles"] = {"large": current | fields}
        sections["runners"]["mi300-gpu-2"]["profile"] = "large"

    return change


def arc(**fields: Any) -> Change:
    """Sets fields of the controller."""

    def change(sections: dict[str, Any]) -> None:
        sections["arc"] = fields

    return change


def credentials(**fields: Any) -> Change:
    """Gives the project other credentials."""

    def change(sections: dict[str, Any]) -> None:
        sections["projects"]["ml"]["credentials"] = {"secretName": "ml-github", **fields}

    return change


def together(*changes: Change) -> Change:
    """All of the changes."""

    def change(sections: dict[str, Any]) -> None:
        for one in changes:
            one(sections)

    return change


def secret(key: str) -> Change:
    """Sets a secret of the stack."""

    def change(sections: dict[str, Any]) -> None:
        sections[key] = {"secure": "v1:abc"}

    return change


def kubeconfig(sections: dict[str, Any]) -> None:
    """Has the kubeconfig as a secret."""
    sections["cluster"]["kubeconfig"] = {"kind": "secret"}


DIGEST = "ghcr.io/example/runner@sha256:" + "0" * 64

RAISED = {
    "a token is not set": (credentials(kind="token"), "missing-secret", "error", "projects.ml.credentials"),
    "a private key is not set": (
        credentials(kind="githubApp", appId=1, installationId=2),
        "missing-secret",
        "error",
        "projects.ml.credentials",
    ),
    "a kubeconfig is not set": (kubeconfig, "missing-secret", "error", "cluster.kubeconfig"),
    "a tag that moves": (
        profile(image="ghcr.io/example/runner:main"),
        "mutable-image",
        "warning",
        "profiles.large.image",
    ),
    "a variant's tag that moves": (
        profile(image="ghcr.io/example/runner:latest"),
        "mutable-image",
        "warning",
        "profiles.large.image",
    ),
    "no tag": (
        profile(docker={"image": "registry.example.com:5000/dind"}),
        "mutable-image",
        "warning",
        "profiles.large.docker.image",
    ),
    "a render group": (profile(renderGroup=110), "fixed-render-group", "warning", "profiles.large.renderGroup"),
    "Docker on part of a node": (
        runner(docker=True, gpus=4),
        "shared-docker",
        "warning",
        "runners.mi300-gpu-2.docker",
    ),
    "Docker": (runner(docker=True, gpus=8), "unlimited-docker", "note", "runners.mi300-gpu-2.memory"),
    "more idle GPUs than there are": (
        runner(min=5, max=5),
        "minimum-exceeds-pool",
        "error",
        "cluster.nodePools.mi300x",
    ),
    "more GPUs sold than there are": (
        runner(max=5),
        "overcommitted",
        "error",
        "cluster.nodePools.mi300x",
    ),
    "a successor that nobody serves": (
        runner(deprecated={"until": "2027-06-30", "use": "mi300-gpu-9"}),
        "deprecated-to-nowhere",
        "error",
        "runners.mi300-gpu-2.deprecated.use",
    ),
    "a label that is its own successor": (
        runner(deprecated={"until": "2027-06-30", "use": "mi300-gpu-2"}),
        "deprecated-to-nowhere",
        "error",
        "runners.mi300-gpu-2.deprecated.use",
    ),
    "an update strategy that loses listeners": (
        together(arc(updateStrategy="eventual"), runner(min=1)),
        "eventual-updates",
        "warning",
        "arc.updateStrategy",
    ),
    "an upgrade that is not finished": (
        arc(version="0.14.2", upgradeFrom="0.13.1"),
        "arc-upgrade-open",
        "note",
        "arc.upgradeFrom",
    ),
    "a label whose last day is over": (
        runner(deprecated={"until": TODAY - datetime.timedelta(days=1)}),
        "expired-deprecation",
        "warning",
        "runners.mi300-gpu-2.deprecated.until",
    ),
}


@pytest.mark.parametrize(("change", "name", "severity", "path"), RAISED.values(), ids=RAISED)
def test_a_finding_is_raised(tmp_path: pathlib.Path, change: Change, name: str, severity: str, path: str) -> None:
    assert (name, severity, path) in found(tmp_path, change)


QUIET = {
    "the smallest stack": settled,
    "a secret of somebody else's": credentials(kind="existingSecret"),
    "a token that is set": together(credentials(kind="token"), secret("ml-token")),
    "a kubeconfig that is set": together(kubeconfig, secret("kubeconfig")),
    "a version": profile(image="registry.example.com:5000/runner:2.334.0"),
    "a digest": profile(image=DIGEST),
    "a tag that moves, pinned by a digest": profile(image=DIGEST.replace("@", ":main@")),
    "a version that only begins like one that moves": profile(image="ghcr.io/example/runner:main-2027.1"),
    "as many idle GPUs as there are": runner(min=4, max=4),
    "as many GPUs sold as there are": runner(max=4),
    "more GPUs sold than there are, as declared": together(runner(max=5), pool(overcommit="allowed")),
    "no GPUs": runner(gpus=0, min=4, max=4),
    "no Docker": runner(docker=False),
    "the last day of a deprecated label": runner(deprecated={"until": TODAY}),
}


@pytest.mark.parametrize("change", QUIET.values(), ids=QUIET)
def test_no_finding_is_raised(tmp_path: pathlib.Path, change: Change) -> None:
    assert found(tmp_path, change) == []


def test_docker_that_has_a_whole_node_shares_it_with_nobody(tmp_path: pathlib.Path) -> None:
    assert [name for name, _, _ in found(tmp_path, runner(docker=True, gpus=8, max=1))] == ["unlimited-docker"]


def test_every_finding_has_a_test_and_a_name() -> None:
    # Those about pods are in test_pod_findings.py.
    assert {name for _, name, _, _ in RAISED.values()} == findings.NAMES - pod_findings.RULES.keys()


# -- acknowledgements -------------------------------------------------------------------------------------------------


def acknowledged(**fields: Any) -> Change:
    """Docker on part of a node, and an acknowledgement."""

    def change(sections: dict[str, Any]) -> None:
        runner(docker=True)(sections)
        entry = {"finding": "shared-docker", "reason": "one team", "until": TODAY, **fields}
        sections.setdefault("acknowledged", []).append(entry)

    return change


def names(report: Report) -> list[str]:
    """Names of the open findings."""
    return [finding.name for finding, _ in report.open]


def test_an_acknowledgement_ends_with_its_last_day(tmp_path: pathlib.Path) -> None:
    on_the_day = reported(tmp_path, acknowledged())
    assert names(on_the_day) == ["unlimited-docker"]
    assert [finding.name for finding in on_the_day.acknowledged] == ["shared-docker"]
    the_day_after = reported(tmp_path, acknowledged(), TODAY + datetime.timedelta(days=1))
    assert names(the_day_after) == ["shared-docker", "unlimited-docker"]
    assert the_day_after.acknowledged == ()


def second_runner(sections: dict[str, Any]) -> None:
    """Another runner with Docker."""
    pool(overcommit="allowed")(sections)
    sections["runners"]["mi300-gpu-1"] = sections["runners"]["mi300-gpu-2"] | {"gpus": 1, "cpu": 8, "docker": True}


def test_an_acknowledgement_may_name_one_setting(tmp_path: pathlib.Path) -> None:
    one = reported(tmp_path, together(acknowledged(path="runners.mi300-gpu-2.docker"), second_runner))
    assert names(one) == ["shared-docker", "unlimited-docker", "unlimited-docker"]
    assert [at.path[1] for finding, at in one.open if finding.name == "shared-docker"] == ["mi300-gpu-1"]
    every = reported(tmp_path, together(acknowledged(), second_runner))
    assert names(every) == ["unlimited-docker", "unlimited-docker"]
    assert len(every.acknowledged) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"finding": "fixed-render-group"}, "there is no finding 'fixed-render-group' to acknowledge; remove it"),
        (
            {"path": "runners.mi300-gpu-1.docker"},
            "there is no finding 'shared-docker' at runners.mi300-gpu-1.docker to acknowledge; remove it",
        ),
        (
            {"finding": "shared-dcoker"},
            "there is no finding 'shared-dcoker' to acknowledge; did you mean 'shared-docker'?",
        ),
    ],
)
def test_an_acknowledgement_of_nothing_is_a_finding(
    tmp_path: pathlib.Path, fields: dict[str, str], message: str
) -> None:
    unused = [one for one, _ in reported(tmp_path, acknowledged(**fields)).open if "acknowledgement" in one.name]
    assert unused == [Finding("unused-acknowledgement", "note", ("acknowledged", 0, "finding"), message)]


def test_an_acknowledgement_that_has_ended_is_not_unused(tmp_path: pathlib.Path) -> None:
    ended = reported(tmp_path, acknowledged(until=datetime.date(2020, 1, 1)))
    assert names(ended) == ["shared-docker", "unlimited-docker"]


def test_a_report_is_one_line_for_each_in_the_order_of_the_file(tmp_path: pathlib.Path) -> None:
    lines = reported(tmp_path, together(credentials(kind="token"), runner(docker=True, gpus=8, max=1))).lines()
    assert [line.split(": ")[1:3] for line in lines] == [
        ["projects.ml.credentials", "error"],
        ["runners.mi300-gpu-2.memory", "note"],
    ]
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["[missing-secret]", "[unlimited-docker]"]


# -- the committed stack ----------------------------------------------------------------------------------------------


def committed(on: datetime.date) -> tuple[list[str], list[str]]:
    """Open and acknowledged findings of the MI300 stack on a day, each with its path."""
    mi300 = stack.read(ROOT, "mi300")
    report = findings.report(mi300.settings, mi300.file, on)
    return (
        [f"{one.name} {'.'.join(map(str, one.path))}" for one, _ in report.open],
        sorted(f"{one.name} {'.'.join(map(str, one.path))}" for one in report.acknowledged),
    )


OPEN = [
    "missing-secret cluster.ssh",
    "missing-secret projects.gpu-test-cluster.credentials",
    "unlimited-docker runners.linux-mi300-gpu-2.memory",
]
KNOWN = [
    "deprecated-proxy-mode cluster.kubespray.proxyMode",
    "fixed-render-group profiles.pytorch.renderGroup",
    "mutable-image profiles.pytorch.docker.image",
    "mutable-image profiles.pytorch.image",
    "shared-docker runners.linux-mi300-gpu-2.docker",
    "spans-sites cluster.nodePools",
    "spans-sites cluster.nodePools",
    "unknown-runner-version profiles.pytorch.image",
]


def test_what_is_found_of_the_mi300_stack() -> None:
    assert committed(datetime.date(2027, 3, 31)) == (OPEN, KNOWN)


def test_what_is_known_of_the_mi300_stack_comes_back() -> None:
    opened, known = committed(datetime.date(2027, 4, 1))
    assert (sorted(opened), known) == (sorted(OPEN + KNOWN), [])


# -- deprecated labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "serves"),
    [
        ("https://github.com/example", True),
        ("https://GitHub.com/Example/", True),
        ("https://github.com/enterprises/example", True),
        ("https://github.com/example/one-repository", False),
        ("https://github.com/example-2", False),
        ("https://github.com/another", False),
    ],
)
def test_a_deprecated_label_may_lead_to_another_stack_that_serves_its_users(
    tmp_path: pathlib.Path, url: str, serves: bool
) -> None:
    other = SMALLEST.replace("mi300-gpu-2:", "mi300-gpu-9:")
    (tmp_path / "Pulumi.other.yaml").write_text(other.replace("https://github.com/example", url))
    open_ = found(tmp_path, runner(deprecated={"until": "2027-06-30", "use": "mi300-gpu-9"}))
    assert ("deprecated-to-nowhere" in {name for name, _, _ in open_}) is not serves


# -- without docstrings -----------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("name", stack.names(ROOT))
def test_python_without_docstrings_finds_and_accepts_the_same(name: str) -> None:
    """`python -OO` has no docstrings and no assertions; names of findings are in neither."""
    program = "from gpufleet_tools.cli import main; main()"
    outcomes = []
    for options in ([], ["-OO"]):
        command = [sys.executable, *options, "-c", program, "-C", str(ROOT), "check", name]
        environment = os.environ | {"PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        outcomes.append((ended.returncode, ended.stdout, ended.stderr))
    plain, optimised = outcomes
    assert optimised == plain
    assert "Traceback" not in plain[2]
    assert plain[1]
