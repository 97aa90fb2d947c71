"""Update of the table of runner releases from GitHub's list of releases and the registry of its image."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.arc import runner_releases
from gpufleet.arc.runner_releases import RUNNER_REPOSITORY, release_number
from gpufleet_tools.runner_images.registry import NoSuchImage, Registry, parse
from gpufleet_tools.runner_images.web import LookupFailed, Refused, get

RELEASES_URL = "https://api.github.com/repos/actions/runner/releases"
"""GitHub's list of the runner's releases."""

_PAGES = 20
"""Maximum number of pages of 100 releases."""

Table = dict[str, Any]


def refreshed(
    table: Table, today: datetime.date, seconds: float, releases_url: str | None = None, registry_url: str | None = None
) -> tuple[Table, list[str]]:
    """Return the table as of today, and notes about it, one line each. Raises LookupFailed."""
    before = {row["version"]: row for row in table["releases"]}
    found = _released(releases_url or RELEASES_URL, table["minimumToRegister"]["version"], seconds)
    missing = sorted(before.keys() - found.keys(), key=release_number)
    if missing:
        raise LookupFailed(
            f"{releases_url or RELEASES_URL}: does not list {', '.join(missing)}, which the table has; if GitHub has"
            f" withdrawn the release, remove it from {runner_releases.TABLE.name}; otherwise the list is incomplete"
        )
    rows = [
        _row(found[version], before.get(version, {})) for version in sorted(found, key=release_number, reverse=True)
    ]
    notes = _resolve(rows, seconds, registry_url)
    notes += [
        f"{version} is new, published on {found[version]['published']}" for version in found if version not in before
    ]
    return {**table, "lookedUp": str(today), "releases": rows}, notes


def table_of(root: pathlib.Path) -> pathlib.Path:
    """Return the file of the table in a checkout. Raises LookupFailed."""
    file = root / "components" / "gpufleet" / "arc" / runner_releases.TABLE.name
    if not file.is_file():
        raise LookupFailed(f"{file}: does not exist; --refresh requires a checkout; install a newer gpufleet instead")
    return file


def refresh(file: pathlib.Path, found: Table) -> bool:
    """Write the table. Return whether the default image has changed."""
    before = runner_releases.parsed(json.loads(file.read_text())).default
    file.write_text(json.dumps(found, indent=2) + "\n")
    return runner_releases.parsed(found).default != before


def _row(found: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    kept = {key: before[key] for key in ("noJobsFrom", "digest") if key in before}
    return {"version": found["version"], "published": found["published"], **kept, "source": found["source"]}


def _resolve(rows: list[dict[str, str]], seconds: float, registry_url: str | None) -> list[str]:
    """Add the digest of the newest release's image. The image may be published later than the release."""
    row, image = rows[0], parse(RUNNER_REPOSITORY)
    try:
        found = Registry(image.host, seconds, registry_url).manifest(image.name, row["version"])
    except NoSuchImage:
        return [f"{RUNNER_REPOSITORY}:{row['version']} does not exist yet; the default image is unchanged"]
    changed = row.get("digest") not in (None, found.digest)
    source = row.pop("source")
    row |= {"digest": found.digest, "source": source}
    return [f"{RUNNER_REPOSITORY}:{row['version']} has a new digest: {found.digest}"] if changed else []


def _released(url: str, oldest: str, seconds: float) -> dict[str, dict[str, str]]:
    """Return the releases from `oldest` on, by version. Raises LookupFailed."""
    found: dict[str, dict[str, str]] = {}
    for entry in _entries(f"{url}?per_page=100", seconds):
        row = _published(url, entry)
        if row and release_number(row["version"]) >= release_number(oldest):
            found[row["version"]] = row
    if not found:
        raise LookupFailed(f"{url}: lists no release {oldest} or newer")
    return found


def _entries(url: str, seconds: float) -> Iterator[Any]:
    """Yield the entries of all pages."""
    following: str | None = url
    for _ in range(_PAGES):
        if following is None:
            return
        try:
            answer = get(following, seconds, _headers(following))
        except Refused as refused:
            if refused.status == 401:
                raise LookupFailed(f"{following}: GitHub rejects GITHUB_TOKEN; renew or unset it") from None
            raise
        try:
            page = json.loads(answer.body)
        except ValueError:
            raise LookupFailed(f"{following}: the response is not JSON") from None
        if not isinstance(page, list):
            raise LookupFailed(f"{following}: the response is not a list of releases")
        yield from page
        following = _next(following, answer.headers.get("link", ""))


def _headers(url: str) -> dict[str, str]:
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    token = os.environ.get("GITHUB_TOKEN")
    # The token is sent to GitHub only, whatever --releases is.
    if token and urllib.parse.urlsplit(url)[:2] == urllib.parse.urlsplit(RELEASES_URL)[:2]:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _next(url: str, link: str) -> str | None:
    """Return the address of the next page, which must be on the same host."""
    found = re.search(r'<([^>]+)>;\s*rel="next"', link)
    if found is None:
        return None
    address: str = urllib.parse.urljoin(url, found[1])
    if urllib.parse.urlsplit(address)[:2] != urllib.parse.urlsplit(url)[:2]:
        raise LookupFailed(f"{url}: the next page is on another host, {urllib.parse.urlsplit(address).netloc}")
    return address


def _published(url: str, entry: Any) -> dict[str, str] | None:
    """Return version, date and page of an entry; None for drafts, prereleases and other tags."""
    try:
        if entry["draft"] or entry["prerelease"] or not re.fullmatch(r"v\d+\.\d+\.\d+", entry["tag_name"]):
            return None
        day = datetime.datetime.fromisoformat(entry["published_at"]).date()
        return {"version": entry["tag_name"][1:], "published": str(day), "source": str(entry["html_url"])}
    except (KeyError, TypeError, ValueError):
        raise LookupFailed(f"{url}: an entry is not a release: it has no tag, date or page") from None
