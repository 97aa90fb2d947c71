"""Findings about pods: what a pod template bypasses, and what job containers that are pods may do."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.tools.check.test_findings import Change, found, profile, reported, runner

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}
PODS = {"kind": "kubernetes", "workVolumeClaim": CLAIM}


def both(*changes: Change) -> Change:
    def change(sections: dict[str, Any]) -> None:
        for each in changes:
            each(sections)

    return change


def message(folder: pathlib.Path, change: Change, name: str) -> str:
    (only,) = [finding.message for finding, _ in reported(folder, change).open if finding.name == name]
    return only


@pytest.mark.parametrize(
    ("template", "message_"),
    [
        ({"spec": {"hostNetwork": True}}, "sets spec.hostNetwork in runner pods without validation"),
        (
            {"metadata": {"labels": {"a": "b"}}, "spec": {"schedulerName": "kai-scheduler"}},
            "sets metadata.labels and spec.schedulerName in runner pods without validation;"
            " the check for a matching node ignores it; set podMetadata instead of metadata.labels",
        ),
        (
            {"spec": {"containers": [{"name": "runner", "resources": {}, "image": "a:1"}]}},
            "sets spec.containers.runner.image and spec.containers.runner.resources in runner pods without"
            " validation; capacity ignores its resources; set image instead of spec.containers.runner.image",
        ),
        (
            {"spec": {"priorityClassName": "ci"}},
            "sets spec.priorityClassName in runner pods without validation;"
            " set priorityClassName instead of spec.priorityClassName",
        ),
    ],
)
def test_a_pod_template_is_told_with_what_it_bypasses(
    template: dict[str, Any], message_: str, tmp_path: pathlib.Path
) -> None:
    assert message(tmp_path, profile(podTemplate=template), "pod-template") == message_


@pytest.mark.parametrize("docker", [PODS, {"kind": "kubernetes-novolume"}])
def test_jobs_that_may_read_credentials(docker: dict[str, Any], tmp_path: pathlib.Path) -> None:
    pods = both(profile(docker=docker), runner(docker=True))
    assert "every Secret in namespace ml" in message(tmp_path, pods, "jobs-read-secrets")
    own = both(profile(docker=docker, serviceAccountName="runners"), runner(docker=True))
    unused = both(profile(docker=docker), runner(docker=False))
    for change in (own, unused, both(profile(), runner(docker=True))):
        assert "jobs-read-secrets" not in [name for name, *_ in found(tmp_path, change)]


def test_gpus_that_no_job_sees(tmp_path: pathlib.Path) -> None:
    pods = both(profile(docker=PODS), runner(docker=True))
    assert "holds its 2 unused" in message(tmp_path, pods, "job-pods-without-gpus")
    env = {"ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE": "/etc/hooks/job.yaml"}
    for change in (both(profile(docker=PODS, env=env), runner(docker=True)), both(pods, runner(gpus=0))):
        assert "job-pods-without-gpus" not in [name for name, *_ in found(tmp_path, change)]


def allowed(*folders: str) -> Change:
    def change(sections: dict[str, Any]) -> None:
        sections["hostPaths"] = [*folders]

    return change


def of_node(path: str) -> dict[str, Any]:
    return {"hostPath": {"path": path}}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"volumes": {"models": {"mountPath": "/m", "source": of_node("/srv/models")}}}, "volumes.models"),
        ({"workVolume": of_node("/srv/models")}, "workVolume"),
        ({"podTemplate": {"spec": {"volumes": [{"name": "m", **of_node("/srv/models")}]}}}, "podTemplate"),
    ],
)
def test_folders_of_the_node_are_allowed_by_the_stack_file(
    fields: dict[str, Any], place: str, tmp_path: pathlib.Path
) -> None:
    finding = ("host-path", "error", f"profiles.large.{place}")
    assert finding in found(tmp_path, profile(**fields))
    assert finding in found(tmp_path, both(profile(**fields), allowed("/srv/models-of-others")))
    assert "host-path" not in [name for name, *_ in found(tmp_path, both(profile(**fields), allowed("/srv")))]
    assert message(tmp_path, profile(**fields), "host-path") == (
        "/srv/models of the node is mounted by pods, but the stack file does not allow it; add it to hostPaths"
    )


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("/", "/etc/kubernetes"),
        ("/var/run/docker.sock", "/run/docker.sock"),
        ("/run/containerd/containerd.sock", "/run/containerd"),
        ("/etc/kubernetes", "/etc/kubernetes"),
    ],
)
def test_folders_that_give_the_node_are_errors_even_if_allowed(path: str, leads: str, tmp_path: pathlib.Path) -> None:
    mounted = profile(volumes={"node": {"mountPath": "/node", "source": of_node(path)}})
    for change in (mounted, both(mounted, allowed(path, "/"))):
        assert message(tmp_path, change, "host-path") == (
            f"{path} of the node gives pods control over the node through {leads}; mount a folder with data only"
        )

    def acknowledge(sections: dict[str, Any]) -> None:
        entry = {"finding": "host-path", "path": "profiles.large.volumes.node", "reason": "a", "until": "2027-03-31"}
        sections["acknowledged"] = [entry]

    assert "host-path" not in [name for name, *_ in found(tmp_path, both(mounted, acknowledge))]


def test_pods_of_jobs_have_no_daemon(tmp_path: pathlib.Path) -> None:
    names = [name for name, *_ in found(tmp_path, both(profile(docker=PODS), runner(docker=True)))]
    assert not {"shared-docker", "unlimited-docker"} & {*names}
