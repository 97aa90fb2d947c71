"""Upgrades of ARC in stack files: what is written, what is refused, and what a cluster must look like."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpufleet.arc.controller import ARC_VERSION
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.plan import stack
from gpufleet_tools.upgrade.arc import Request, UpgradeError, run
from tests.conftest import ROOT, Gpufleet, MakeProject

OLD = "0.13.1"
SMALL = (ROOT / "tests/settings/smallest.ok.yaml").read_text()


def lab(arc: str = "", **names: str) -> str:
    """A small stack, with a section `arc`."""
    section = f"  gpu-runners:arc: {arc}\n" if arc else ""
    text = SMALL.replace("  gpu-runners:projects:", f"{section}  gpu-runners:projects:")
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def arc_of(root: Path) -> tuple[str, str | None]:
    settings = stack.read(root, "lab").settings
    return settings.arc.version, settings.arc.upgrade_from


def test_an_upgrade_is_written_explained_and_finished(project: MakeProject) -> None:
    root = project({"lab": lab(f"{{version: {OLD}}}  # ours")})
    lines = run(root, "lab", Request(to=ARC_VERSION))
    assert arc_of(root) == (ARC_VERSION, OLD)
    assert "# ours" in (root / "Pulumi.lab.yaml").read_text()
    assert lines[0] == f"Pulumi.lab.yaml: arc.version is {ARC_VERSION}, arc.upgradeFrom is {OLD}"
    assert [line.split()[0] for line in lines[2:-1]] == ["1.", "2.", "3.", "4."]
    assert lines[-1].endswith("gpufleet upgrade arc lab --finish")
    run(root, "lab", Request(finish=True))
    assert arc_of(root) == (ARC_VERSION, None)


def test_a_stack_without_a_version_has_the_default_one(project: MakeProject) -> None:
    root = project({"lab": lab()})
    run(root, "lab", Request(to=OLD, rollback=True))
    assert arc_of(root) == (OLD, ARC_VERSION)


def test_the_cluster_may_have_another_version_than_the_file(project: MakeProject) -> None:
    """The default version has changed with gpufleet's, and the file does not name one."""
    root = project({"lab": lab()})
    run(root, "lab", Request(to=ARC_VERSION, installed=OLD))
    assert arc_of(root) == (ARC_VERSION, OLD)


def test_an_upgrade_in_progress_is_rolled_back(project: MakeProject) -> None:
    root = project({"lab": lab(f"{{version: {ARC_VERSION}, upgradeFrom: {OLD}}}")})
    run(root, "lab", Request(rollback=True))
    assert arc_of(root) == (OLD, ARC_VERSION)


@pytest.mark.parametrize(
    ("arc", "request_", "reason"),
    [
        (OLD, Request(), "name the wanted version: --to VERSION"),
        (OLD, Request(to=OLD), f"--to {OLD}: Pulumi.lab.yaml has this version already"),
        (OLD, Request(to="0.12.0"), "--to 0.12.0 is older than 0.13.1; add --rollback to return to an older version"),
        (OLD, Request(to="0.99.0"), "--to 0.99.0: unknown version of ARC; reviewed are >=0.12, <0.15"),
        (OLD, Request(to="new"), "--to new: unknown version of ARC; reviewed are >=0.12, <0.15"),
        (
            "0.12.1",
            Request(to="0.14.2"),
            "--to 0.14.2: 0.12.1 is several minor versions away; upgrade to a 0.13 version first",
        ),
        (
            "0.14.2",
            Request(to="0.12.1", rollback=True),
            "--to 0.12.1: 0.14.2 is several minor versions away; upgrade to a 0.13 version first",
        ),
        (OLD, Request(finish=True), "Pulumi.lab.yaml: arc.upgradeFrom is not set: there is no upgrade to finish"),
        (
            f"0.14.2, upgradeFrom: {OLD}",
            Request(to="0.14.1"),
            "Pulumi.lab.yaml: an upgrade from 0.13.1 to 0.14.2 is in progress; end it with --finish after its pulumi"
            " up, or return to 0.13.1 with --rollback",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    project: MakeProject, arc: str, request_: Request, reason: str
) -> None:
    root = project({"lab": lab(f"{{version: {arc}}}")})
    before = (root / "Pulumi.lab.yaml").read_text()
    with pytest.raises(UpgradeError) as refused:
        run(root, "lab", request_)
    assert str(refused.value) == reason
    assert (root / "Pulumi.lab.yaml").read_text() == before


def test_a_file_that_cannot_be_edited_is_left_to_its_people(project: MakeProject) -> None:
    text = lab(f"&ours {{version: {OLD}}}") + "  other:thing: *ours\n"
    root = project({"lab": text})
    with pytest.raises(UpgradeError, match=r"change it by hand: arc\.version: 0\.14\.2, arc\.upgradeFrom"):
        run(root, "lab", Request(to=ARC_VERSION))
    assert (root / "Pulumi.lab.yaml").read_text() == text


def test_an_invalid_stack_is_not_upgraded(project: MakeProject) -> None:
    with pytest.raises(InvalidSettings):
        run(project({"lab": lab("{versoin: 1}")}), "lab", Request(to=ARC_VERSION))


# -- other clusters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "noted"), [("https://github.com/example", True), ("https://github.com/strangers", False)]
)
def test_another_cluster_with_the_label_is_named(project: MakeProject, url: str, noted: bool) -> None:
    other = lab(**{"name: lab": "name: other", "https://github.com/example": url})
    root = project({"lab": lab(f"{{version: {OLD}}}"), "other": other})
    lines = run(root, "lab", Request(to=ARC_VERSION))
    note = "note: stack other also serves mi300-gpu-2; upgrade it only after this upgrade is finished"
    assert (note in lines) == noted


def test_two_clusters_with_one_label_are_not_upgraded_at_once(project: MakeProject) -> None:
    other = lab(f"{{version: {ARC_VERSION}, upgradeFrom: {OLD}}}", **{"name: lab": "name: other"})
    root = project({"lab": lab(f"{{version: {OLD}}}"), "other": other})
    with pytest.raises(UpgradeError, match="stack 'other' serves the same labels and is being upgraded; finish"):
        run(root, "lab", Request(to=ARC_VERSION))


# -- the live cluster -------------------------------------------------------------------------------------------------


def item(name: str, namespace: str, version: str, **metadata: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/version": version}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, **metadata},
        "status": {"readyReplicas": 1},
    }


CONTROLLER = item("arc-gha-rs-controller", "arc-systems", OLD)
SCALE_SET = item("mi300-gpu-2", "ml", OLD)


@contextlib.contextmanager
def served(folder: Path, controllers: list[Any], scale_sets: list[Any]) -> Iterator[Path]:
    """An API server with these objects; its kubeconfig."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            items = scale_sets if "autoscalingrunnersets" in self.path else controllers
            content = json.dumps({"items": items}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "users": [{"name": "lab", "user": {}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    yield file
    server.shutdown()
    server.server_close()


def test_a_cluster_that_is_ready_is_upgraded(project: MakeProject, tmp_path: Path) -> None:
    strangers = item("theirs", "elsewhere", "0.9.0", deletionTimestamp="2026-11-22T00:00:00Z")
    root = project({"lab": lab(f"{{version: {OLD}}}")})
    with served(tmp_path, [CONTROLLER], [SCALE_SET, strangers]) as kubeconfig:
        run(root, "lab", Request(to=ARC_VERSION, kubeconfig=kubeconfig))
    assert arc_of(root) == (ARC_VERSION, OLD)


@pytest.mark.parametrize(
    ("controllers", "scale_sets", "reason"),
    [
        ([], [], "there is no controller arc-systems/arc-gha-rs-controller in the cluster; nothing to upgrade"),
        (
            [item("arc-gha-rs-controller", "arc-systems", "0.12.1")],
            [],
            "the controller in the cluster has version 0.12.1, not 0.13.1; run pulumi up with 0.13.1 first",
        ),
        (
            [CONTROLLER | {"status": {}}],
            [],
            "the controller arc-systems/arc-gha-rs-controller does not run; only a running controller finishes what"
            " the last pulumi up started",
        ),
        (
            [CONTROLLER],
            [item("mi300-gpu-2", "ml", OLD, deletionTimestamp="2026-11-22T00:00:00Z")],
            "scale set ml/mi300-gpu-2 is being deleted, and a chart applied to it now would be lost; wait until it is"
            " gone (its busy runners finish their jobs first)",
        ),
        (
            [CONTROLLER],
            [item("mi300-gpu-2", "ml", "0.12.1")],
            "scale set ml/mi300-gpu-2 has version 0.12.1, not 0.13.1; run pulumi up first",
        ),
    ],
)
def test_a_cluster_that_is_not_ready_is_refused(
    project: MakeProject, tmp_path: Path, controllers: list[Any], scale_sets: list[Any], reason: str
) -> None:
    root = project({"lab": lab(f"{{version: {OLD}}}")})
    with served(tmp_path, controllers, scale_sets) as kubeconfig, pytest.raises(UpgradeError) as refused:
        run(root, "lab", Request(to=ARC_VERSION, kubeconfig=kubeconfig))
    assert str(refused.value) == reason
    assert arc_of(root) == (OLD, None)


def test_an_upgrade_ends_only_once_the_cluster_has_it(project: MakeProject, tmp_path: Path) -> None:
    root = project({"lab": lab(f"{{version: {ARC_VERSION}, upgradeFrom: {OLD}}}")})
    with served(tmp_path, [CONTROLLER], [SCALE_SET]) as kubeconfig, pytest.raises(UpgradeError) as refused:
        run(root, "lab", Request(finish=True, kubeconfig=kubeconfig))
    assert len(str(refused.value).splitlines()) == 2
    assert arc_of(root) == (ARC_VERSION, OLD)


@pytest.mark.parametrize("content", [None, "a: [", "{}"])
def test_a_kubeconfig_that_is_none_is_a_line(project: MakeProject, tmp_path: Path, content: str | None) -> None:
    root, file = project({"lab": lab(f"{{version: {OLD}}}")}), tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UpgradeError) as refused:
        run(root, "lab", Request(to=ARC_VERSION, kubeconfig=file))
    assert str(refused.value).startswith(f"--kubeconfig {file}: ")
    assert len(str(refused.value).splitlines()) == 1


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_or_says_in_a_line_why_not(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": lab(f"{{version: {OLD}}}")})
    refused = gpufleet("-C", root, "upgrade", "arc", "lab", "--to", "0.12.1")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "gpufleet: --to 0.12.1 is older than 0.13.1; add --rollback to return to an older version\n"
    done = gpufleet("-C", root, "upgrade", "arc", "lab", "--to", ARC_VERSION)
    assert (done.code, done.err) == (0, "")
    assert arc_of(root) == (ARC_VERSION, OLD)
