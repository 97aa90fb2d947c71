"""Releases of GitHub's runner: their images, and the first day without jobs for each version.

GitHub requires each new release within 30 days of its publication, and rejects registrations below a minimum version
(changelog of 2026-06-12, enforced since 2026-09-29; GitHub Enterprise Server is not affected). ARC disables the
runner's own update, so only a newer image helps.

`gpufleet pins --refresh` writes the table `runner_releases.json`. Its fields:

- `lookedUp`: last day on which a source showed the first release as the newest one.
- `noJobsFrom`: first day without jobs that GitHub itself published for a version: `runtime_deprecates_at`, which
  administrators get from `GET /repos/{owner}/{repo}/actions/runners/deprecations/{version}`. It can be six weeks later
  than the 30-day rule, which applies to versions without this field.
- `digest`: digest of the image's index in the registry; missing if there is no image yet, or if it is unknown.
"""

from __future__ import annotations

import datetime
import functools
import json
import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TABLE = pathlib.Path(__file__).with_suffix(".json")
"""Table of releases, newest first."""

RUNNER_REPOSITORY = "ghcr.io/actions/actions-runner"
"""Repository of GitHub's runner image; its tags are runner versions."""

DAYS_TO_UPDATE = 30
"""Days after a release during which GitHub still assigns jobs to older versions."""

_OFFICIAL = re.compile(r"(?:.*/)?actions/actions-runner:(\d+\.\d+\.\d+)(?:@.*)?")
"""Reference of GitHub's image with a version tag, also in a mirror that keeps its name."""


@dataclass(frozen=True, kw_only=True)
class RunnerRelease:
    """A release of the runner."""

    version: str
    """Version, such as 2.338.0."""
    published: datetime.date
    """Date of publication."""
    source: str
    """URL of the release page."""
    digest: str | None = None
    """Digest of the image; None if unknown."""
    no_jobs_from: datetime.date | None = None
    """First day without jobs, as published by GitHub; None if not published."""

    @property
    def image(self) -> str:
        """Return the image reference with tag and digest."""
        return f"{RUNNER_REPOSITORY}:{self.version}" + (f"@{self.digest}" if self.digest else "")


@dataclass(frozen=True, kw_only=True)
class RunnerReleases:
    """All known releases."""

    looked_up: datetime.date
    """Last day on which the first release was confirmed as the newest."""
    minimum_to_register: str
    """Oldest version that GitHub registers."""
    releases: tuple[RunnerRelease, ...]
    """Releases, newest first."""

    @property
    def newest(self) -> RunnerRelease:
        """Return the newest release."""
        return self.releases[0]

    @property
    def default(self) -> RunnerRelease:
        """Return the newest release whose image digest is known."""
        return next((release for release in self.releases if release.digest), self.newest)

    def registers(self, version: str) -> bool:
        """Return whether GitHub registers runners of a version."""
        return release_number(version) >= release_number(self.minimum_to_register)

    def no_jobs_from(self, version: str) -> datetime.date | None:
        """Return the first day on which GitHub assigns no jobs to a version; None while it is the newest."""
        own = next((release for release in self.releases if release.version == version), None)
        if own and own.no_jobs_from:
            return own.no_jobs_from
        follower = self.next_after(version)
        return follower.published + datetime.timedelta(days=DAYS_TO_UPDATE) if follower else None

    def next_after(self, version: str) -> RunnerRelease | None:
        """Return the oldest known release that is newer than a version; None if there is none."""
        newer = [each for each in self.releases if release_number(each.version) > release_number(version)]
        return newer[-1] if newer else None

    def version_of(self, image: str) -> str | None:
        """Return the runner version of an image reference, by a known digest or by the tag of GitHub's image; None if
        it has neither."""
        # The digest takes precedence: nodes pull it, regardless of the tag.
        digest = image.partition("@")[2]
        known_digest = next((each.version for each in self.releases if digest and each.digest == digest), None)
        official = _OFFICIAL.fullmatch(image)
        return known_digest or (official[1] if official else None)


def release_number(version: str) -> tuple[int, ...]:
    """Return a version's parts for comparison: 2.335.1 is newer than 2.335.0."""
    return tuple(int(part) for part in version.split("."))


def is_enforced(config_url: str) -> bool:
    """Return whether GitHub rejects old runners at a URL: on github.com and *.ghe.com, but not on Enterprise Server."""
    host = urllib.parse.urlsplit(config_url).hostname or ""
    return host in ("github.com", "www.github.com") or host.endswith(".ghe.com")


@functools.cache
def known() -> RunnerReleases:
    """Return the table of known releases."""
    return parsed(json.loads(TABLE.read_text()))


def parsed(table: Mapping[str, Any]) -> RunnerReleases:
    """Return the releases of a table in the form of `runner_releases.json`."""
    releases = (
        RunnerRelease(
            version=row["version"],
            published=datetime.date.fromisoformat(row["published"]),
            source=row["source"],
            digest=row.get("digest"),
            no_jobs_from=datetime.date.fromisoformat(row["noJobsFrom"]) if "noJobsFrom" in row else None,
        )
        for row in table["releases"]
    )
    return RunnerReleases(
        looked_up=datetime.date.fromisoformat(table["lookedUp"]),
        minimum_to_register=table["minimumToRegister"]["version"],
        releases=tuple(sorted(releases, key=lambda release: release_number(release.version), reverse=True)),
    )
