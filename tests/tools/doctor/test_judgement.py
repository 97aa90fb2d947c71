"""Findings about snapshots: one recorded from ARC 0.14.2 that is healthy, and what is changed in it."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from typing import Any

import pytest

from gpufleet_tools.doctor import crds, diagnosis, report
from gpufleet_tools.doctor.declared import Declared
from gpufleet_tools.doctor.diagnosis import Diagnosis
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement.runners import JOB_LIMIT
from gpufleet_tools.doctor.reading import Snapshot
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.doctor.view import RECOVERED, RESTARTS, View
from tests.tools.doctor.recorded import findings, mi300, names, snapshot

LABEL, NAMESPACE = "mi300-cluster", "gpu-test-cluster"

AN_HOUR = datetime.timedelta(hours=1)


def one(of: Snapshot, kind: str, name: str = LABEL) -> Any:
    """An object of a snapshot, by a part of its name; to be changed."""
    return next(each for each in of[kind] if name in each["metadata"]["name"])


def later(of: Snapshot, by: datetime.timedelta = AN_HOUR) -> Snapshot:
    """The same objects, looked at later."""
    return dataclasses.replace(of, now=of.now + by)


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def ago(of: Snapshot, seconds: float) -> str:
    """A time as the API server writes it."""
    return (of.now - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_healthy_cluster_has_no_findings() -> None:
    assert findings(snapshot()) == []
    assert findings(later(snapshot())) == []


def test_the_table_fits_a_hundred_columns() -> None:
    view = View(mi300(), snapshot(), Target())
    lines = report.text(Diagnosis("https://127.0.0.1:6443", view, ()), 100).splitlines()
    assert max(map(len, lines)) <= 100
    row = next(line for line in lines if line.startswith(LABEL))
    assert row.split()[1:6] == ["Running", "43", "running", "1", "8"]


# -- the controller and the CRDs --------------------------------------------------------------------------------------


def test_a_controller_that_is_gone_holds_up_deletions() -> None:
    of = snapshot()
    one(of, "runner sets")["metadata"]["deletionTimestamp"] = ago(of, 60)
    found = findings(of, lists={**of.lists, "controllers": []})
    assert {each.name for each in found} == {"controller-missing", "scale-set-terminating", "waiting-finalizers"}
    first = next(each for each in found if each.name == "controller-missing")
    assert f"Only a running controller removes the finalizers of scale sets: {LABEL} cannot" in first.consequence
    assert first.commands == ("pulumi up --stack mi300 --refresh",)


def test_helm_believes_that_the_controller_is_installed() -> None:
    of = snapshot()
    labels = {"owner": "helm", "name": "arc", "status": "deployed"}
    record = {"metadata": {"name": "sh.helm.release.v1.arc.v1", "namespace": "arc-systems", "labels": labels}}
    record["metadata"]["creationTimestamp"] = ago(of, 100)
    finding = only(findings(of, lists={**of.lists, "controllers": [], "releases": [record]}))
    assert finding.commands == ("helm get manifest -n arc-systems arc | kubectl apply -n arc-systems -f -",)


def test_a_controller_without_pods() -> None:
    of = snapshot()
    deployment = one(of, "controllers", "arc")
    deployment["status"].pop("readyReplicas")
    assert names(findings(later(of))) == [("controller-not-ready", "controller")]
    deployment["spec"]["replicas"] = 0
    assert only(findings(of)).commands == (
        "kubectl scale deployment -n arc-systems arc-gha-rs-controller --replicas=1",
    )


@pytest.mark.parametrize(
    ("version", "severity", "others"), [("0.14.1", "warning", 0), ("0.13.1", "error", 2), ("0.15.0", "error", 2)]
)
def test_versions_of_the_controller(version: str, severity: str, others: int) -> None:
    of = snapshot()
    container = one(of, "controllers", "arc")["spec"]["template"]["spec"]["containers"][0]
    container["image"] = f"ghcr.io/actions/gha-runner-scale-set-controller:{version}@sha256:{'0' * 64}"
    found = findings(of)
    first = next(each for each in found if each.name == "controller-version")
    assert (first.severity, first.fact) == (severity, f"version {version} runs, but the stack declares 0.14.2")
    assert [each.name for each in found if each is not first] == ["scale-set-version"] * others


def test_a_second_controller() -> None:
    of = snapshot()
    other = copy.deepcopy(one(of, "controllers", "arc"))
    other["metadata"]["namespace"] = "elsewhere"
    changed = {**of.lists, "controllers": [*of["controllers"], other]}
    assert names(findings(of, lists=changed)) == [("second-controller", "controller")]
    other["spec"]["template"]["spec"]["containers"][0]["args"].append("--watch-single-namespace=elsewhere")
    assert findings(of, lists=changed) == []


def test_old_crds() -> None:
    finding = only(findings(snapshot(), crds=crds.known()["0.13"]))
    assert finding.fact.startswith("they are those of ARC 0.13; the stack declares 0.14.2, which has ")
    assert "--version 0.14.2 | kubectl apply --server-side" in finding.commands[0]
    newer = {plural: sorted([*own, "spec.zebra"]) for plural, own in crds.known()["0.14"].items()}
    assert findings(snapshot(), crds=newer) == [], "more fields do no harm"
    assert names(findings(snapshot(), crds={})) == [("crds-missing", "CRDs")]
    assert findings(snapshot(), crds=None) == [], "unknown is not missing"


# -- scale sets -------------------------------------------------------------------------------------------------------


def test_a_lost_apply() -> None:
    of = snapshot()
    sets = [each for each in of["runner sets"] if each["metadata"]["name"] != LABEL]
    listeners = [each for each in of["listeners"] if LABEL not in each["metadata"]["name"]]
    assert names(findings(of, lists={**of.lists, "runner sets": sets, "listeners": listeners})) == [
        ("scale-set-missing", LABEL)
    ]


def test_a_scale_set_that_terminates_is_waited_for() -> None:
    of = snapshot()
    one(of, "runner sets")["metadata"]["deletionTimestamp"] = ago(of, 60)
    finding = only(findings(of))
    assert (finding.name, finding.subject) == ("scale-set-terminating", LABEL)
    assert finding.consequence.startswith("It waits for 1 running jobs.")
    assert finding.commands[0] == (
        f"kubectl wait -n {NAMESPACE} autoscalingrunnerset/{LABEL} --for=delete --timeout=600s"
    )


def test_a_scale_set_that_is_not_registered() -> None:
    of = snapshot()
    found = one(of, "runner sets")
    del found["metadata"]["annotations"]["runner-scale-set-id"]
    assert names(findings(of)) == [("not-registered", LABEL)]


def test_settings_that_differ() -> None:
    of = snapshot()
    spec = one(of, "runner sets")["spec"]
    spec["maxRunners"] = 9
    assert names(findings(of)) == [("size-differs", LABEL), ("listener-size", LABEL)]
    spec["maxRunners"] = 8
    (container,) = spec["template"]["spec"]["containers"]
    container["image"] = "ghcr.io/actions/actions-runner:2.337.0"
    found = findings(of)
    assert ("image-differs", LABEL) in names(found)


def test_a_runner_that_is_too_old() -> None:
    of = snapshot()
    (container,) = one(of, "runner sets")["spec"]["template"]["spec"]["containers"]
    container["image"] = "ghcr.io/actions/actions-runner:2.334.0"
    found = {each.name: each for each in findings(of)}
    assert found["runner-expires"].severity == "error"
    assert "no jobs to runner 2.334.0 since 2026-" in found["runner-expires"].fact
    one(of, "runner sets")["status"]["phase"] = "Outdated"
    outdated = {each.name: each for each in findings(of)}
    assert outdated.keys() == {"image-differs", "outdated"}
    assert "Apply the stack file, which declares" in outdated["outdated"].consequence


# -- listeners --------------------------------------------------------------------------------------------------------


def test_a_listener_with_a_reference_that_does_not_exist() -> None:
    of = snapshot()
    listener = one(of, "listeners")
    listener["spec"]["ephemeralRunnerSetName"] = "gone"
    finding = only(findings(of))
    assert (finding.name, finding.subject) == ("stale-listener", LABEL)
    name = listener["metadata"]["name"]
    assert finding.commands == (f"kubectl delete autoscalinglistener -n arc-systems {name}",)


def test_a_runner_set_that_is_being_deleted_is_replaced() -> None:
    of = snapshot()
    found = one(of, "ephemeral runner sets")
    found["metadata"]["deletionTimestamp"] = ago(of, 5)
    finding = only(findings(of))
    assert finding.name == "stale-listener"
    assert f'"gpufleet.dev/replaces":"{found["metadata"]["name"]}"' in finding.commands[0]


def test_a_listener_of_another_registration() -> None:
    of = snapshot()
    one(of, "listeners")["spec"]["runnerScaleSetId"] = 7
    assert only(findings(of)).fact == "the listener serves scale set 7, but ARC registered 43"


def test_a_key_that_did_not_reach_the_listener() -> None:
    of = snapshot()
    key = (NAMESPACE, "pre-defined-rocm-secret")
    (entry,) = of.secrets[key]["metadata"]["managedFields"]  # type: ignore[index]
    entry["time"] = ago(of, 1)
    finding = only(findings(of))
    assert (finding.name, finding.severity) == ("rotated-key", "warning")
    assert finding.commands[0].startswith(f"kubectl delete pod -n arc-systems {LABEL}-")
    assert names(findings(of, secrets={**of.secrets, key: None})) == [("secret-missing", LABEL)]
    entry["fieldsV1"] = {"f:metadata": {}}
    assert findings(of) == [], "labels are no credentials"


def restless(of: Snapshot, log: str) -> list[Finding]:
    """The findings if the listener was just started for the third time, with a log."""
    listener, pod = one(of, "listeners"), one(of, "ARC's pods")
    listener["metadata"]["creationTimestamp"] = ago(of, 300)
    pod["metadata"]["creationTimestamp"] = ago(of, 2)
    involved = {"namespace": "arc-systems", "name": listener["metadata"]["name"]}
    starts: list[Any] = [
        {"metadata": {"creationTimestamp": ago(of, 60 - number)}, "involvedObject": {**involved, "uid": str(number)}}
        for number in range(RESTARTS)
    ]
    logs = {listener["metadata"]["name"]: log}
    return findings(of, lists={**of.lists, "events": starts}, logs=logs)


FAILED = "2026/11/22 18:17:33 Application returned an error: failed to create message session: "


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("", "listener-restarts"),
        (f"{FAILED}no such host", "listener-restarts"),
        (
            f"{FAILED}request POST https://pipelines/_apis/runtime/runnerscalesets/7/sessions?api-version=6.0-preview"
            ' failed(status="404 Not Found"): unexpected status code 404',
            "unknown-scale-set",
        ),
        (f'{FAILED}access_tokens failed(status="401 Unauthorized"): Bad credentials', "invalid-credentials"),
        (
            f"{FAILED}request POST https://pipelines/_apis/runtime/runnerscalesets/7/sessions?api-version=6.0-preview"
            ' failed(status="409 Conflict"): TaskAgentSessionConflictException',
            "session-conflict",
        ),
        (f'{FAILED}failed(status="401 Unauthorized")\n{FAILED}no such host', "listener-restarts"),
    ],
)
def test_a_listener_that_does_not_stay_up(log: str, name: str) -> None:
    finding = only(restless(snapshot(), log))
    assert (finding.name, finding.subject) == (name, LABEL)
    assert finding.fact.startswith(f"the listener started {RESTARTS} times in 10 min")


def test_a_listener_that_stays_up_again() -> None:
    of = snapshot()
    restless(of, "")
    one(of, "ARC's pods")["metadata"]["creationTimestamp"] = ago(of, RECOVERED + 1)
    assert findings(of) == []


def test_a_listener_that_eventual_updates_keep_away() -> None:
    of = snapshot()
    arguments = one(of, "controllers", "arc")["spec"]["template"]["spec"]["containers"][0]["args"]
    listeners = [each for each in of["listeners"] if LABEL not in each["metadata"]["name"]]
    without = {**of.lists, "listeners": listeners}
    assert names(findings(later(of), lists=without)) == [("listener-missing", LABEL)]
    arguments.append("--update-strategy=eventual")
    finding = only(findings(of, lists=without))
    assert finding.name == "eventual-update"
    assert f"/containers/0/args/{len(arguments) - 1}" in finding.commands[0]


# -- runners and nodes ------------------------------------------------------------------------------------------------


def test_runners_that_failed() -> None:
    of = snapshot()
    runner = one(of, "runners")
    runner["status"] = {"phase": "Failed", "reason": "InvalidPod", "message": "Failed to create\nthe pod: x"}
    finding = only(findings(of))
    assert finding.fact == f"{runner['metadata']['name']} failed: Failed to create the pod: x"
    assert finding.commands == (
        f"kubectl delete ephemeralrunner -n {NAMESPACE} --wait=false {runner['metadata']['name']}",
    )


def test_a_job_that_never_ends() -> None:
    of = snapshot()
    assert findings(later(of, JOB_LIMIT - AN_HOUR)) == []
    (finding,) = findings(later(of, JOB_LIMIT + AN_HOUR))
    assert (finding.name, finding.subject) == ("hung-runners", LABEL)
    assert finding.fact.endswith("have had the same job for more than 120 hours, GitHub's limit")
    of_profile = with_time_limit(8 * AN_HOUR)
    assert diagnosis.findings(View(of_profile, later(of, 7 * AN_HOUR), Target())) == []
    (finding,) = diagnosis.findings(View(of_profile, later(of, 9 * AN_HOUR), Target()))
    assert finding.fact.endswith("have had the same job for more than 8 hours, their time limit")


def with_time_limit(limit: datetime.timedelta) -> Declared:
    """The committed stack with a time limit of jobs."""
    scale_sets = [dataclasses.replace(each, job_timeout=limit) for each in mi300().scale_sets]
    return dataclasses.replace(mi300(), scale_sets=scale_sets)


def test_pods_without_a_node_show_the_scheduler_s_reason() -> None:
    of = snapshot()
    pod = one(of, "runner pods")
    pod["spec"].pop("nodeName")
    message = "0/3 nodes are available: 3 Insufficient amd.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    finding = only(findings(later(of)))
    assert (finding.name, finding.fact) == ("pending-runners", f"1 runner pods do not start: {message}")


def test_an_image_that_cannot_be_pulled() -> None:
    of = snapshot()
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    status = {"phase": "Pending", "containerStatuses": [{"name": "runner", "state": {"waiting": waiting}}]}
    one(of, "runner pods")["status"] = status
    assert only(findings(later(of))).fact == "1 runner pods do not start: runner: ImagePullBackOff not found"


def test_nodes_without_their_gpus() -> None:
    of = snapshot()
    node = one(of, "nodes", "austin-1")
    node["status"]["allocatable"]["amd.com/gpu"] = "7"
    finding = only(findings(of))
    assert (finding.name, finding.subject) == ("missing-devices", "node mi300x-austin-1")
    assert finding.fact == "the node offers 7 amd.com/gpu; the stack declares 8"
    del node["status"]["allocatable"]["amd.com/gpu"]
    assert "offers 0 amd.com/gpu" in only(findings(of)).fact
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting."}]
    assert only(findings(of)).fact == "the node is not ready: Kubelet stopped posting."
    others = [each for each in of["nodes"] if each is not node]
    assert names(findings(of, lists={**of.lists, "nodes": others})) == [("node-missing", "node mi300x-austin-1")]


def test_a_device_plugin_that_is_not_ready() -> None:
    of = snapshot()
    one(of, "daemon sets", "device-plugin")["status"]["numberReady"] = 2
    pod = one(of, "device pods", "device-plugin")
    waiting = {"name": "plugin", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pod["status"] = {"phase": "Running", "conditions": [], "containerStatuses": [waiting]}
    finding = only(findings(of))
    assert finding.fact == f"2 of 3 pods are ready: {pod['metadata']['name']}: plugin: CrashLoopBackOff"


def validating(of: Snapshot, **state: Any) -> Any:
    """The plugin's pod of mi300x-austin-1, whose validation has this status, and the node without GPUs."""
    one(of, "daemon sets", "device-plugin")["status"]["numberReady"] = 2
    del one(of, "nodes", "austin-1")["status"]["allocatable"]["amd.com/gpu"]
    pods = [each for each in of["device pods"] if "device-plugin" in each["metadata"]["name"]]
    pod: Any = next(each for each in pods if each["spec"]["nodeName"] == "mi300x-austin-1")
    pod["status"] = {
        "phase": "Pending",
        "conditions": [],
        "initContainerStatuses": [{"name": "gpu-validation", **state}],
        "containerStatuses": [{"name": "device-plugin", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    return pod


RAS = "ras: GPU 0000:e5:00.0 has 2 uncorrectable errors in umc; reboot, and replace it if they return"


@pytest.mark.parametrize(
    "state",
    [
        {"state": {"terminated": {"exitCode": 1, "message": f"{RAS}\n"}}},
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": f"{RAS}\n"}},
        },
    ],
)
def test_gpus_that_fail_their_validation(state: Any) -> None:
    """One finding: not the missing devices and the plugin as well."""
    of = snapshot()
    pod = validating(of, **state)
    finding = only(findings(of))
    assert (finding.name, finding.subject) == ("gpu-validation-failed", "node mi300x-austin-1")
    assert finding.fact == f"its GPUs failed the validation: {RAS}"
    assert finding.commands[1] == f"kubectl delete pod -n kube-system {pod['metadata']['name']}"


def test_gpus_that_are_being_validated() -> None:
    of = snapshot()
    validating(of, state={"running": {"startedAt": ago(of, 60)}})
    assert (only(findings(of)).name, only(findings(of)).severity) == ("gpu-validation-running", "note")


def test_a_validation_that_does_not_start() -> None:
    of = snapshot()
    validating(of, state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
    finding = only(findings(of))
    assert finding.name == "gpu-validation-pending"
    assert finding.fact.endswith("gpu-validation: ImagePullBackOff no such image")


def test_gpus_that_passed_their_validation() -> None:
    """Their device plugin can still fail."""
    of = snapshot()
    validating(of, state={"terminated": {"exitCode": 0}})
    assert {each.name for each in findings(of)} == {"missing-devices", "device-plugin"}


# -- leftovers --------------------------------------------------------------------------------------------------------


def test_a_scale_set_that_the_stack_does_not_declare() -> None:
    of = snapshot()
    other = copy.deepcopy(one(of, "runner sets"))
    other["metadata"] |= {"name": "old-label", "uid": "another"}
    found = findings(of, lists={**of.lists, "runner sets": [*of["runner sets"], other]})
    assert names(found) == [("undeclared-scale-set", f"AutoscalingRunnerSet {NAMESPACE}/old-label")]
    other["metadata"]["namespace"] = "another-team"
    assert only(findings(of, lists={**of.lists, "runner sets": [*of["runner sets"], other]})).severity == "note"


def test_an_interrupted_helm_operation() -> None:
    of = snapshot()
    labels = {"owner": "helm", "name": LABEL, "status": "pending-upgrade"}
    name = f"sh.helm.release.v1.{LABEL}.v2"
    record: Any = {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}}
    record["metadata"]["creationTimestamp"] = ago(of, 100)
    finding = only(findings(of, lists={**of.lists, "releases": [record]}))
    assert finding.name == "interrupted-release"
    assert finding.commands[0] == f"kubectl delete secret -n {NAMESPACE} {name}"


def test_a_namespace_that_never_ends() -> None:
    of = snapshot()
    namespace = one(of, "namespaces", NAMESPACE)
    namespace["metadata"]["deletionTimestamp"] = ago(of, 100)
    remaining = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "Some content remains."}
    namespace["status"]["conditions"] = [remaining]
    finding = only(findings(of))
    assert finding.name == "terminating-namespace"
    assert finding.fact.endswith(" s: Some content remains.")


def test_nothing_is_said_of_what_was_not_read() -> None:
    of = snapshot()
    assert findings(of, lists={}, crds=None, secrets={}) == []
