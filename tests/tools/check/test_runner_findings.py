"""The age of runners: when GitHub stops giving them jobs, how early `check` reports it, and unknown versions."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
from typing import Any

import pytest
import yaml

from gpufleet.arc import runner_releases
from gpufleet.arc.runner_releases import RunnerReleases
from gpufleet_stacks.settings import load
from gpufleet_tools.check import findings, runner_findings
from tests.conftest import ROOT

SMALLEST = (ROOT / "tests" / "settings" / "smallest.ok.yaml").read_text()

TABLE: dict[str, Any] = {
    "lookedUp": "2026-03-01",
    "minimumToRegister": {"version": "2.10.0", "source": "https://example.com/minimum"},
    "releases": [
        {"version": "2.12.0", "published": "2026-03-01", "source": "https://example.com/2.12.0"},
        {"version": "2.11.1", "published": "2026-02-02", "source": "https://example.com/2.11.1"},
        {
            "version": "2.11.0",
            "published": "2026-02-01",
            "digest": "sha256:" + "a" * 64,
            "source": "https://example.com/2.11.0",
        },
        {
            "version": "2.10.0",
            "published": "2026-01-01",
            "noJobsFrom": "2026-04-20",
            "source": "https://example.com/2.10.0",
        },
    ],
}

RELEASES = runner_releases.parsed(TABLE)


@pytest.fixture(autouse=True)
def releases(fresh_releases: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the releases of this file be the ones that are known."""
    monkeypatch.setattr(runner_releases, "known", lambda: RELEASES)


def found(folder: pathlib.Path, day: str, config_url: str = "https://github.com/example", **profile: Any) -> list[str]:
    """Return the findings about the smallest stack's runner with a profile."""
    content = yaml.safe_load(SMALLEST)["config"]
    content["gpu-runners:profiles"] = {"own": profile}
    content["gpu-runners:runners"]["mi300-gpu-2"]["profile"] = "own"
    content["gpu-runners:projects"]["ml"]["configUrl"] = config_url
    path = folder / "Pulumi.lab.yaml"
    path.write_text(yaml.safe_dump({"config": content}))
    report = findings.report(*load.from_file(path), datetime.date.fromisoformat(day))
    return [line.partition(": ")[2] for line in report.lines() if line.rsplit("[")[-1][:-1] in runner_findings.NAMES]


def version(name: str) -> dict[str, str]:
    return {"image": "registry.example.com/runner:3", "runnerVersion": name}


EXPIRY = {
    "a day before the warning": ("2.11.1", "2026-03-16", None),
    "14 days before": ("2.11.1", "2026-03-17", "warning: GitHub assigns no jobs to runner 2.11.1 from 2026-03-31 on"),
    "the day before": ("2.11.1", "2026-03-30", "warning: GitHub assigns no jobs to runner 2.11.1 from 2026-03-31 on"),
    "the day": ("2.11.1", "2026-03-31", "error: GitHub has assigned no jobs to runner 2.11.1 since 2026-03-31"),
    "a patch counts as the next release": (
        "2.11.0",
        "2026-03-04",
        "error: GitHub has assigned no jobs to runner 2.11.0",
    ),
    "a version that was never released": (
        "2.10.7",
        "2026-03-03",
        "error: GitHub has assigned no jobs to runner 2.10.7",
    ),
    "the day that GitHub published is later than the rule": ("2.10.0", "2026-03-15", None),
    "the day that GitHub published": (
        "2.10.0",
        "2026-04-20",
        "error: GitHub has assigned no jobs to runner 2.10.0 since",
    ),
    "below the minimum": ("2.9.9", "2026-01-01", "error: GitHub does not register runner 2.9.9"),
    "the newest": ("2.12.0", "2026-03-31", None),
    "newer than all that are known": ("2.13.0", "2026-03-31", None),
}


@pytest.mark.parametrize(("name", "day", "said"), EXPIRY.values(), ids=EXPIRY)
def test_a_runner_expires_30_days_after_the_next_release(
    tmp_path: pathlib.Path, name: str, day: str, said: str | None
) -> None:
    lines = found(tmp_path, day, **version(name))
    if said is None:
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"profiles.own.runnerVersion: {said}")
        assert line.endswith("; use runner 2.12.0 or newer [runner-expires]")
        assert "jobs for mi300-gpu-2" in line


def test_an_image_of_unknown_contents_is_a_warning(tmp_path: pathlib.Path) -> None:
    (line,) = found(tmp_path, "2026-03-02", image="registry.example.com/runner:2.12.0")
    assert line.startswith("profiles.own.image: warning: the runner version of")
    assert "gpufleet pins --image registry.example.com/runner:2.12.0" in line


@pytest.mark.parametrize(
    "image",
    [
        "ghcr.io/actions/actions-runner:2.11.0",
        "mirror.example.com:5000/proxy/actions/actions-runner:2.11.0@sha256:" + "b" * 64,
        "registry.example.com/anything@sha256:" + "a" * 64,
        "ghcr.io/actions/actions-runner:2.12.0@sha256:" + "a" * 64,
    ],
    ids=["tag", "mirror", "digest", "digest before tag"],
)
def test_a_reference_that_shows_the_version_needs_no_declaration(tmp_path: pathlib.Path, image: str) -> None:
    (line,) = found(tmp_path, "2026-03-10", image=image)
    assert line.startswith("profiles.own.image: error: GitHub has assigned no jobs to runner 2.11.0 since 2026-03-04")


@pytest.mark.parametrize(
    ("config_url", "enforced"),
    [
        ("https://github.com/example", True),
        ("https://GitHub.com/example", True),
        ("https://example.ghe.com/org", True),
        ("https://github.example.com/org", False),
        ("https://notgithub.com/org", False),
    ],
)
def test_enterprise_server_takes_old_runners(tmp_path: pathlib.Path, config_url: str, enforced: bool) -> None:
    assert bool(found(tmp_path, "2026-06-01", config_url, **version("2.9.9"))) is enforced


def test_labels_without_a_profile_are_judged_by_the_default_image(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(SMALLEST)
    settings, file = load.from_file(path)
    newer = {"version": "2.9999.0", "published": "2026-01-01", "source": "https://example.com/2.9999.0"}
    table = runner_releases.parsed(TABLE | {"releases": [newer, *TABLE["releases"]]})
    monkeypatch.setattr(runner_releases, "known", lambda: table)
    (finding,) = runner_findings.findings(settings, file, datetime.date(2026, 2, 1))
    assert (finding.name, finding.severity, finding.path) == ("runner-expires", "error", ("runners", "mi300-gpu-2"))


def test_many_labels_are_counted() -> None:
    assert runner_findings._labels(["a"]) == "a"
    assert runner_findings._labels(["a", "b"]) == "a and b"
    assert runner_findings._labels(["a", "b", "c"]) == "a, b and c"
    assert runner_findings._labels(["a", "b", "c", "d"]) == "a and 3 more labels"


# -- the committed table ----------------------------------------------------------------------------------------------


def test_the_committed_table_is_whole() -> None:
    table: RunnerReleases = runner_releases.parsed(yaml.safe_load(runner_releases.TABLE.read_text()))
    numbers = [runner_releases.release_number(release.version) for release in table.releases]
    assert numbers == sorted(numbers, reverse=True)
    days = [release.published for release in table.releases]
    assert days == sorted(days, reverse=True)
    assert table.looked_up >= table.newest.published
    assert table.registers(table.releases[-1].version)
    for release in table.releases:
        assert release.source.endswith(f"/v{release.version}")
        assert release.digest is None or len(release.digest) == len("sha256:") + 64
        assert release.no_jobs_from is None or release.no_jobs_from > release.published


def test_the_default_is_the_newest_release_whose_image_is_known() -> None:
    assert RELEASES.default.version == "2.11.0"
    assert RELEASES.default.image == "ghcr.io/actions/actions-runner:2.11.0@sha256:" + "a" * 64
    without = dataclasses.replace(RELEASES, releases=RELEASES.releases[:1])
    assert without.default.image == "ghcr.io/actions/actions-runner:2.12.0"
