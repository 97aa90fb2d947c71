"""Pods of runners beyond document 002: what a profile of a real fleet has, in Kubernetes' own words."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.arc import Docker, KubernetesMode, RunnerResources, Volume
from gpufleet.arc.scale_set import scale_set_problems
from gpufleet.arc.strategic_merge import merged
from tests.components.arc.test_scale_set import BASE, PYTORCH, changed, values_of

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}


def spec_of(**changes: Any) -> dict[str, Any]:
    """The pod spec of the runner without Docker, with changes."""
    spec: dict[str, Any] = values_of(changed(BASE, **changes))["template"]["spec"]
    return spec


def runner_of(**changes: Any) -> dict[str, Any]:
    (container,) = spec_of(**changes)["containers"]
    found: dict[str, Any] = container
    return found


def dind_of(docker: Docker) -> dict[str, Any]:
    found: dict[str, Any] = spec_of(docker=docker)["initContainers"][1]
    return found


def test_fields_of_the_pod_stand_as_they_are() -> None:
    fields = {"affinity": {"nodeAffinity": {}}, "priorityClassName": "ci", "securityContext": {"fsGroup": 1001}}
    spec = spec_of(pod_spec=fields)
    assert {key: spec[key] for key in fields} == fields


def test_the_render_group_is_added_to_the_security_context() -> None:
    context = {"fsGroup": 1001, "supplementalGroups": [44]}
    spec = spec_of(render_group=110, pod_spec={"securityContext": context})
    assert spec["securityContext"] == {"fsGroup": 1001, "supplementalGroups": [110, 44]}
    assert context["supplementalGroups"] == [44]


def test_nothing_dangerous_is_there_unless_said() -> None:
    for args in (BASE, PYTORCH):
        spec = values_of(args)["template"]["spec"]
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"}
        privileged = [
            each["name"]
            for each in [*spec.get("initContainers", []), *spec["containers"]]
            if each.get("securityContext")
        ]
        assert privileged == (["dind"] if args is PYTORCH else [])


def test_limits_and_extended_resources() -> None:
    resources = RunnerResources(
        cpu="4", memory="8Gi", cpu_limit="8", memory_limit="8Gi", extended={"devices.kubevirt.io/kvm": 1}
    )
    assert runner_of(resources=resources)["resources"] == {
        "requests": {"cpu": "4", "memory": "8Gi", "devices.kubevirt.io/kvm": 1},
        "limits": {"cpu": "8", "memory": "8Gi", "devices.kubevirt.io/kvm": 1},
    }


def test_a_command_of_one_s_own_needs_no_list_of_devices() -> None:
    values = values_of(changed(PYTORCH, command=["/home/runner/run.sh"]))
    (runner,) = values["template"]["spec"]["containers"]
    assert runner["command"] == ["/home/runner/run.sh"]
    assert "podinfo" not in [volume["name"] for volume in values["template"]["spec"]["volumes"]]


def test_a_time_limit_of_jobs_does_not_depend_on_the_command() -> None:
    own = runner_of(job_timeout_minutes=480, command=["/start"])
    assert own["command"] == ["/start"]
    shell, option, script = own["lifecycle"]["postStart"]["exec"]["command"]
    assert (shell, option) == ("/bin/bash", "-c")
    assert "-ge 28800 ]" in script
    assert "lifecycle" not in runner_of()


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"job_timeout_minutes": 0}, ("job_timeout_minutes",)),
        ({"job_timeout_minutes": 7201}, ("job_timeout_minutes",)),
        ({"pod_spec": {"hostPID": True}}, ("pod_template", "spec", "hostPID")),
        (
            {"pod_template": {"spec": {"containers": [{"name": "runner", "lifecycle": {"postStart": {}}}]}}},
            ("pod_template", "spec", "containers", 0, "lifecycle", "postStart"),
        ),
    ],
)
def test_a_time_limit_that_is_not_kept_is_refused(changes: dict[str, Any], path: tuple[Any, ...]) -> None:
    args = changed(BASE, **{"job_timeout_minutes": 60, **changes})
    (problem,) = scale_set_problems(args)
    assert (problem.path, problem.code) == (path, "job-timeout")
    assert [*scale_set_problems(changed(args, job_timeout_minutes=60, pod_spec={}, pod_template={}))] == []


def test_a_variable_replaces_one_of_the_pod_s_own() -> None:
    reference = {"fieldRef": {"fieldPath": "metadata.uid"}}
    env = runner_of(env_value_from={"POD_NAME": reference}, env={"A": "b"})["env"]
    assert [each["name"] for each in env] == ["NODE_NAME", "A", "POD_NAME"]
    assert env[-1]["valueFrom"] == reference


def test_volumes_are_mounted_where_and_how_they_say() -> None:
    volumes = [
        Volume(name="models", mount_path="/models", source={"emptyDir": {}}, sub_path="llama", read_only=True),
        Volume(name="caches", source={"persistentVolumeClaim": {"claimName": "caches"}}),
    ]
    mount = {"name": "caches", "mountPath": "/caches", "subPathExpr": "$(NODE_NAME)"}
    spec = spec_of(volumes=volumes, volume_mounts=[mount], work_volume={"hostPath": {"path": "/mnt/work"}})
    (runner,) = spec["containers"]
    assert runner["volumeMounts"] == [
        {"name": "work", "mountPath": "/home/runner/_work"},
        {"name": "models", "mountPath": "/models", "subPath": "llama", "readOnly": True},
        mount,
    ]
    assert spec["volumes"][0] == {"name": "work", "hostPath": {"path": "/mnt/work"}}
    assert [volume["name"] for volume in spec["volumes"]] == ["work", "models", "caches"]


def test_init_containers_run_after_docker_s() -> None:
    prepare = {"name": "prepare", "image": "busybox:1.37.0"}
    names = [each["name"] for each in spec_of(docker=Docker(), init_containers=[prepare])["initContainers"]]
    assert names == ["init-dind-externals", "dind", "prepare"]
    assert spec_of(init_containers=[prepare])["initContainers"] == [prepare]


def test_a_daemon_without_a_data_root() -> None:
    dind = dind_of(Docker(data_root=None))
    assert "--data-root" not in dind["args"][0]
    assert "lifecycle" not in dind
    assert "docker-data" not in [mount["name"] for mount in dind["volumeMounts"]]
    assert "docker-data" not in [volume["name"] for volume in spec_of(docker=Docker(data_root=None))["volumes"]]


def test_a_daemon_with_arguments_and_a_probe_of_its_own() -> None:
    probe = {"exec": {"command": ["docker", "info"]}}
    mount = {"name": "work", "mountPath": "/work"}
    dind = dind_of(Docker(args=["dockerd"], startup_probe=probe, volume_mounts=[mount]))
    assert (dind["args"], dind["startupProbe"], dind["volumeMounts"][-1]) == (["dockerd"], probe, mount)
    assert "command" not in dind


@pytest.mark.parametrize(
    ("mode", "container_mode"),
    [
        (
            KubernetesMode(work_volume_claim=CLAIM, additional_role_rules=[{"verbs": ["get"]}]),
            {
                "type": "kubernetes",
                "kubernetesModeWorkVolumeClaim": CLAIM,
                "kubernetesModeAdditionalRoleRules": [{"verbs": ["get"]}],
            },
        ),
        (KubernetesMode(work_volume_claim=None), {"type": "kubernetes-novolume"}),
    ],
)
def test_job_containers_as_pods(mode: KubernetesMode, container_mode: dict[str, Any]) -> None:
    """The chart adds the work folder, the hooks and the service account (templates/_helpers.tpl at 0.14.2)."""
    values = values_of(changed(BASE, docker=mode))
    assert values["containerMode"] == container_mode
    spec = values["template"]["spec"]
    assert not spec.keys() & {"volumes", "initContainers"}
    assert "volumeMounts" not in spec["containers"][0]


def test_the_listener_is_merged_into_the_controller_s() -> None:
    template = {"spec": {"containers": [{"name": "listener", "resources": {"requests": {"cpu": "1"}}}]}}
    own = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    controller = changed(BASE).controller.__class__(
        service_account="a", namespace="b", listener_template=template, listener_metrics={"counters": {"a": {}}}
    )
    values = values_of(changed(BASE, controller=controller, listener_template=own))
    assert values["listenerTemplate"]["spec"] == template["spec"] | own["spec"]
    metrics = {"gauges": {"gha_busy_runners": {"labels": ["name"]}}}
    assert values_of(changed(BASE, controller=controller, listener_metrics=metrics))["listenerMetrics"] == metrics


def test_a_listener_without_a_container_gets_arc_s() -> None:
    """The CRD requires one; with another name it would be a sidecar."""
    values = values_of(changed(BASE, listener_template={"spec": {"nodeName": "a"}}))
    assert values["listenerTemplate"]["spec"] == {"nodeName": "a", "containers": [{"name": "listener"}]}


# -- strategic merge --------------------------------------------------------------------------------------------------


def test_the_pod_template_has_the_last_word() -> None:
    patch = {"spec": {"hostNetwork": True, "containers": [{"name": "runner", "ports": [{"containerPort": 80}]}]}}
    spec = spec_of(pod_template=patch)
    (runner,) = spec["containers"]
    assert (spec["hostNetwork"], runner["ports"]) == (True, [{"containerPort": 80}])
    assert runner["image"] == BASE.image


ORIGINAL: dict[str, Any] = {
    "spec": {
        "containers": [{"name": "runner", "image": "a", "env": [{"name": "A", "value": "1"}], "command": ["x", "y"]}],
        "volumes": [{"name": "work", "emptyDir": {}}],
        "tolerations": [{"operator": "Exists"}],
    }
}


ON_THE_HOST: dict[str, Any] = {"name": "work", "hostPath": {"path": "/w"}}


@pytest.mark.parametrize(
    ("patch", "changes"),
    [
        ({"tolerations": []}, {"tolerations": []}),
        ({"tolerations": None}, {"tolerations": ...}),
        ({"volumes": [ON_THE_HOST]}, {"volumes": [ON_THE_HOST]}),
        ({"volumes": [{"name": "work", "$patch": "delete"}]}, {"volumes": []}),
        ({"volumes": [{"$patch": "replace"}, ON_THE_HOST | {"name": "b"}]}, {"volumes": [ON_THE_HOST | {"name": "b"}]}),
        ({"dnsPolicy": "Default"}, {"dnsPolicy": "Default"}),
    ],
)
def test_fields_and_items(patch: dict[str, Any], changes: dict[str, Any]) -> None:
    """As kubectl and the API server merge (strategicpatch of k8s.io/apimachinery)."""
    expected = {**ORIGINAL["spec"], **{key: value for key, value in changes.items() if value is not ...}}
    expected = {key: value for key, value in expected.items() if changes.get(key) is not ...}
    assert merged(ORIGINAL, {"spec": patch}) == {"spec": expected}


def test_items_are_merged_by_their_key() -> None:
    patch = {"spec": {"containers": [{"name": "runner", "env": [{"name": "B", "value": "2"}], "command": ["z"]}]}}
    (runner,) = merged(ORIGINAL, patch)["spec"]["containers"]
    assert runner == {
        "name": "runner",
        "image": "a",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "command": ["z"],
    }


def test_the_original_stays_as_it_was() -> None:
    before = str(ORIGINAL)
    merged(ORIGINAL, {"spec": {"containers": [{"name": "runner", "image": "b"}], "volumes": None}})
    assert str(ORIGINAL) == before
