"""`gpufleet pins --refresh`: the table of releases from a list and a registry on this machine, and their bad days."""

from __future__ import annotations

import datetime
import json
import pathlib
from typing import Any

import pytest

from gpufleet.arc import runner_releases
from gpufleet_tools.runner_images import releases
from gpufleet_tools.runner_images.web import LookupFailed
from tests.conftest import Gpufleet
from tests.tools.runner_images.servers import Reply, Server, release

DAY = datetime.date(2026, 3, 5)
NAME = "actions/actions-runner"
DIGEST = "sha256:" + "a" * 64

TABLE: dict[str, Any] = {
    "lookedUp": "2026-02-01",
    "minimumToRegister": {"version": "2.10.0", "source": "https://example.com/minimum"},
    "releases": [
        {
            "version": "2.11.0",
            "published": "2026-02-01",
            "noJobsFrom": "2026-04-30",
            "digest": DIGEST,
            "source": "https://github.com/actions/runner/releases/tag/v2.11.0",
        }
    ],
}

OLD, NEW = release("2.11.0", "2026-02-01"), release("2.12.0", "2026-03-01")


def refreshed(server: Server, seconds: float = 5) -> tuple[dict[str, Any], list[str]]:
    return releases.refreshed(TABLE, DAY, seconds, f"{server.url}/releases", server.url)


def test_a_new_release_comes_first_with_its_day_and_digest(server: Server) -> None:
    server.releases(NEW, OLD)
    digest = server.image(NAME, "2.12.0", b"layer")
    table, notes = refreshed(server)
    assert table["lookedUp"] == "2026-03-05"
    assert table["releases"] == [
        {
            "version": "2.12.0",
            "published": "2026-03-01",
            "digest": digest,
            "source": "https://github.com/actions/runner/releases/tag/v2.12.0",
        },
        *TABLE["releases"],
    ]
    assert notes == ["2.12.0 is new, published on 2026-03-01"]
    assert runner_releases.parsed(table).default.image == f"ghcr.io/{NAME}:2.12.0@{digest}"


def test_a_release_whose_image_is_not_there_yet_counts_but_is_no_default(server: Server) -> None:
    server.releases(NEW, OLD)
    table, notes = refreshed(server)
    assert runner_releases.parsed(table).newest.version == "2.12.0"
    assert runner_releases.parsed(table).default.version == "2.11.0"
    assert notes[0] == "ghcr.io/actions/actions-runner:2.12.0 does not exist yet; the default image is unchanged"


def test_a_tag_that_has_moved_is_told(server: Server) -> None:
    server.releases(OLD)
    digest = server.image(NAME, "2.11.0", b"layer")
    table, notes = refreshed(server)
    assert table["releases"][0]["digest"] == digest
    assert notes == [f"ghcr.io/actions/actions-runner:2.11.0 has a new digest: {digest}"]


def test_drafts_candidates_and_releases_below_the_minimum_are_left_out(server: Server) -> None:
    server.releases(
        release("2.13.0", "2026-03-02", draft=True, published_at=None),
        release("2.12.1", "2026-03-02", prerelease=True),
        release("2.12.0-rc1", "2026-03-02"),
        OLD,
        release("2.9.0", "2025-01-01"),
    )
    server.image(NAME, "2.11.0", b"layer")
    assert [row["version"] for row in refreshed(server)[0]["releases"]] == ["2.11.0"]


def test_every_page_is_read(server: Server) -> None:
    following = f'<{server.url}/releases?per_page=100&page=2>; rel="next"'
    server.releases(NEW, headers={"Link": following})
    server.releases(OLD, page=2)
    server.image(NAME, "2.12.0", b"layer")
    assert [row["version"] for row in refreshed(server)[0]["releases"]] == ["2.12.0", "2.11.0"]


def test_a_registry_that_wants_a_token_for_anybody_gets_it_asked(server: Server) -> None:
    server.releases(OLD)
    digest = server.image(NAME, "2.11.0", b"layer")
    server.token = "anybody"
    scope = "service=here&scope=repository%3Aactions%2Factions-runner%3Apull"
    server.replies[f"/token?{scope}"] = Reply(b'{"token": "anybody"}')
    assert refreshed(server)[0]["releases"][0]["digest"] == digest


def test_the_token_for_github_is_for_github_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    server.releases(OLD)
    server.image(NAME, "2.11.0", b"layer")
    refreshed(server)
    assert server.asked
    assert "ghs_secret" not in str(server.asked)
    monkeypatch.setattr(releases, "RELEASES_URL", f"{server.url}/releases")
    refreshed(server)
    sent = {path: headers.get("Authorization") for path, headers in server.asked}
    assert sent["/releases?per_page=100"] == "Bearer ghs_secret"
    assert [value for path, value in sent.items() if path.startswith("/v2/")] == [None]


def broken(server: Server, reply: Reply, seconds: float = 5) -> str:
    """Return what is said of a list that is answered so."""
    server.replies["/releases?per_page=100"] = reply
    with pytest.raises(LookupFailed) as failed:
        refreshed(server, seconds)
    assert "\n" not in str(failed.value)
    assert str(failed.value).startswith(f"{server.url}/releases")
    return str(failed.value).partition(": ")[2]


WRONG = {
    "no JSON": (Reply(b"<html>"), "the response is not JSON"),
    "no list": (Reply(b'{"message": "Moved"}'), "the response is not a list of releases"),
    "an empty list": (Reply(b"[]"), "lists no release 2.10.0 or newer"),
    "an entry without a day": (Reply(b'[{"tag_name": "v2.11.0"}]'), "an entry is not a release: it has no tag"),
    "an entry that is a word": (Reply(b'["v2.11.0"]'), "an entry is not a release: it has no tag"),
    "half a page": (Reply(b'[{"tag_name"', announced=900), "ended after 12 of 900 bytes; try again"),
    "a page without what is known": (
        Reply(json.dumps([NEW]).encode()),
        "does not list 2.11.0, which the table has; if GitHub has withdrawn the release,"
        " remove it from runner_releases.json; otherwise the list is incomplete",
    ),
    "a rate limit": (
        Reply(b"{}", 403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772712000"}),
        "the rate limit is exceeded until 2026-03-05 12:00 UTC; wait, or set GITHUB_TOKEN",
    ),
    "too many requests": (Reply(b"{}", 429), "the rate limit is exceeded; wait, or set GITHUB_TOKEN"),
    "a bad token": (Reply(b"{}", 401), "GitHub rejects GITHUB_TOKEN; renew or unset it"),
    "a fault of theirs": (Reply(b"{}", 502), "status 502 Bad Gateway"),
    "a page elsewhere": (
        Reply(b"[]", headers={"Link": '<https://example.com/2>; rel="next"'}),
        "the next page is on another host, example.com",
    ),
}


@pytest.mark.parametrize(("reply", "said"), WRONG.values(), ids=WRONG)
def test_a_bad_answer_is_one_line(server: Server, reply: Reply, said: str) -> None:
    assert said in broken(server, reply)


def test_a_server_that_says_nothing_is_not_waited_for(server: Server) -> None:
    assert broken(server, Reply(b"[]", pause=2), 0.2) == "no response in time; raise --seconds, or try again"


def test_a_server_that_trickles_is_not_waited_for(server: Server) -> None:
    assert broken(server, Reply(b" " * 100, pause=0.05, trickle=True), 0.5) == "took too long; raise --seconds"


def test_a_digest_that_differs_is_refused(server: Server) -> None:
    server.releases(OLD)
    server.image(NAME, "2.11.0", b"layer")
    server.replies[f"/v2/{NAME}/manifests/2.11.0"].headers = {"Docker-Content-Digest": DIGEST}
    with pytest.raises(LookupFailed, match=f"the content has the digest .* instead of {DIGEST}"):
        refreshed(server)


# -- the command ------------------------------------------------------------------------------------------------------


def checkout(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Return a folder with the table, and the table's file."""
    file = folder / "components/gpufleet/arc/runner_releases.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(TABLE))
    (folder / "Pulumi.yaml").write_text("name: gpu-runners\n")
    return folder, file


def test_the_command_writes_the_checkouts_table(server: Server, tmp_path: pathlib.Path, gpufleet: Gpufleet) -> None:
    root, file = checkout(tmp_path)
    server.releases(NEW, OLD)
    digest = server.image(NAME, "2.12.0", b"layer")
    where = ("--releases", f"{server.url}/releases", "--registry", server.url, "--on", "2026-03-05")
    ended = gpufleet("-C", root, "pins", "--refresh", *where)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "2.12.0 is new, published on 2026-03-01",
        f"runner releases looked up on 2026-03-05; default image: ghcr.io/actions/actions-runner:2.12.0@{digest}",
        "the default image has changed; update the generated files: make generate",
    ]
    assert json.loads(file.read_text())["releases"][0]["digest"] == digest
    again = gpufleet("-C", root, "pins", "--refresh", *where)
    assert (again.code, len(again.out.splitlines())) == (0, 1), "nothing has changed"


def test_a_refresh_that_fails_writes_nothing(server: Server, tmp_path: pathlib.Path, gpufleet: Gpufleet) -> None:
    root, file = checkout(tmp_path)
    before = file.read_text()
    ended = gpufleet("-C", root, "pins", "--refresh", "--releases", f"{server.url}/nowhere", "--registry", server.url)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"gpufleet: {server.url}/nowhere?per_page=100: status 404 Not Found\n"
    assert file.read_text() == before


def test_what_is_installed_cannot_be_refreshed(tmp_path: pathlib.Path, gpufleet: Gpufleet) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-runners\n")
    ended = gpufleet("-C", tmp_path, "pins", "--refresh")
    assert ended.code == 2
    assert ended.err.endswith("does not exist; --refresh requires a checkout; install a newer gpufleet instead\n")
