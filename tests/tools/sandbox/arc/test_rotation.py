"""Rotated credentials with ARC's own controller and listeners, GitHub simulated: no runner is lost, and the old
credentials can be revoked.

It runs where GPUFLEET_ARC has ARC's programs and GPUFLEET_CHARTS its charts.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpufleet.arc.scale_set import CREDENTIALS_REVISION
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.sandbox import lifecycle, real_arc
from gpufleet_tools.sandbox.arc import charts
from tests.conftest import MakeProject
from tests.tools.sandbox.arc.fleets import FIRST, MI300, PATIENCE, REQUIRES_ARC, SECOND, Real, until

pytestmark = [pytest.mark.process, pytest.mark.slow, REQUIRES_ARC]

PROJECT, SECRET = "gpu-test-cluster", "pre-defined-rocm-secret"
"""Project of SECOND, whose namespace and repository have its name, and its Secret."""

OWNERS_SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "pytorch-secret", "namespace": "pytorch"},
    "data": {"github_token": base64.b64encode(b"ghp_new").decode()},
}
"""The Secret of FIRST's project after its owners have changed it."""


def with_token() -> str:
    """The committed stack with a token in place of the App. Without the other project: its Secret has the same
    stand-in for a token."""
    content = yaml.safe_load(MI300)
    config = content["config"]
    del config["gpu-runners:projects"]["pytorch"], config["gpu-runners:runners"][FIRST]
    config["gpu-runners:projects"][PROJECT]["credentials"] = {"kind": "token", "secretName": SECRET}
    return yaml.safe_dump(content, sort_keys=False)


def with_app() -> str:
    """The same stack with an App."""
    app = {"kind": "githubApp", "appId": "1000001", "installationId": "50000001", "secretName": SECRET}
    content = yaml.safe_load(with_token())
    content["config"]["gpu-runners:projects"][PROJECT]["credentials"] = app
    return yaml.safe_dump(content, sort_keys=False)


@dataclass
class Rotated(Real):
    """A fleet with a project whose credentials change."""

    def pulumi_up(self, text: str, *, new_key: bool) -> None:
        """What `pulumi up` does: Secrets first, then scale sets with the revision of the credentials."""
        (self.root / "Pulumi.mi300.yaml").write_text(text)
        plan, folder = self.stack.plan(), real_arc.folder_of(lifecycle.running(self.stack))
        if new_key:
            (folder / f"{PROJECT}-{SECRET}.pem").unlink(missing_ok=True)
        own = real_arc.with_app_keys(lifecycle.own_objects(plan), folder)
        self.apply(*own)
        (data,) = (each["data"] for each in own if each["metadata"]["name"] == SECRET)
        for release in arc_releases.scale_sets(plan):
            values: dict[str, Any] = copy.deepcopy(dict(release.values))
            if release.name == SECOND and new_key:
                # The plan knows stand-ins only, so their digest is that of the old key.
                digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
                values["listenerTemplate"]["metadata"]["annotations"][CREDENTIALS_REVISION] = digest
            self.apply(*charts.rendered(dataclasses.replace(release, values=values)))

    def is_settled(self, label: str, jobs: int) -> bool:
        """Whether all jobs run, and every label has its listener."""
        sessions = [each["session"] for each in self.github.call("state")["scaleSets"].values()]
        listeners, labels = self.pods("-listener"), self.stack.settings.runners
        complete = None not in sessions and len(sessions) == len(labels) == len(listeners)
        return complete and self.jobs(label, "running") == jobs

    def running(self) -> dict[int, float]:
        """When each running job began. A job whose runner is lost fails."""
        jobs = self.github.call("state")["jobs"]
        return {each["id"]: each["times"]["started"] for each in jobs if each["state"] == "running"}

    def pods(self, part: str) -> dict[str, str]:
        """UIDs of pods by name."""
        found = self.listed(("v1", "Pod"))
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found if part in each["metadata"]["name"]}


@pytest.fixture
def fleet(project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rotated]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet = Rotated(project({"mi300": MI300}))
    try:
        yield fleet
    finally:
        lifecycle.down(fleet.root, "mi300")


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [
        (MI300, MI300, SECOND),
        (MI300, MI300.replace('appId: "1000001"', 'appId: "1000002"'), SECOND),
        (with_token(), with_app(), SECOND),
        (MI300, MI300.replace("pytorch-secret}", 'pytorch-secret, revision: "2"}'), FIRST),
    ],
    ids=["a new key", "another App", "an App for a token", "the owners' Secret"],
)
def test_new_credentials_restart_one_listener_and_touch_no_job(
    fleet: Rotated, before: str, after: str, label: str
) -> None:
    fleet.up(before, **{label.replace("-", "_"): 3})
    # A listener that ends on a busy machine gets its next session after 80 seconds.
    until(lambda: fleet.is_settled(label, 3), 3 * PATIENCE)
    listeners, running, state = fleet.pods("-listener"), fleet.running(), fleet.github.call("state")
    if label == FIRST:
        fleet.apply(OWNERS_SECRET)
    fleet.pulumi_up(after, new_key=label == SECOND)
    until(lambda: len(fleet.github.call("state")["credentials"]) == len(state["credentials"]) + 1)
    until(lambda: fleet.github.call("state")["scaleSets"][label]["session"] is not None)
    changed = {name for name, uid in fleet.pods("-listener").items() if listeners.get(name) != uid}
    assert [name.rpartition("-")[0].startswith(label) for name in changed] == [True]
    assert fleet.running() == running
    # The old credentials are of no use to anybody any more.
    project = fleet.stack.settings.projects[fleet.stack.settings.runners[label].project]
    where = {"namespace": project.namespace, "secret": project.credentials.secret_name}
    owner = project.config_url.removeprefix("https://github.com/").rpartition("/")[2]
    assert len(fleet.github.call("revoke-key", **where, owner=owner, current=False)) == 1
    restarted = fleet.pods("-listener")
    fleet.github.call("queue", label=label, count=2, seconds=1)
    until(lambda: fleet.jobs(label, "completed") == 2)
    fleet.github.call("end", label=label, count=None, result="succeeded")
    until(lambda: fleet.jobs(label, "completed") == 5)
    # A listener that ended would have another pod.
    assert fleet.pods("-listener") == restarted
    assert fleet.github.call("state")["scaleSets"][label]["id"] == state["scaleSets"][label]["id"]
