"""AMD's device plugin and node labeller: their nodes and their arguments."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import yaml

from gpufleet import ExpectedGpus, GpuValidation, InvalidArguments
from gpufleet.amd import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from gpufleet.amd.device_plugin import LABELLER_PROPERTIES, PARTITIONS_PER_GPU, gpu_resource
from gpufleet_stacks import bare_metal as conductor
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.plan import Plan
from tests.recording import on_cluster, recorded, the
from tests.validations import expanded

PLUGIN, LABELLER = "amd", "amd-labeller"


def plan(**args: Any) -> Plan:
    """Plugin and labeller with these arguments."""
    return recorded(lambda: AmdGpuDevicePlugin("amd", AmdGpuDevicePluginArgs(**args), on_cluster()))


def pod(found: Plan, name: str) -> dict[str, Any]:
    """Pod spec of one of the two DaemonSets."""
    return the(found, "DaemonSet", name).inputs["spec"]["template"]["spec"]


def container(found: Plan, name: str) -> dict[str, Any]:
    (only,) = pod(found, name)["containers"]
    return only


both = pytest.mark.parametrize("name", [PLUGIN, LABELLER])


# -- where they run ---------------------------------------------------------------------------------------------------


@both
def test_it_runs_where_it_is_told(name: str) -> None:
    found = plan(
        node_selector={"accelerator": "amd-mi300x"}, tolerations=[{"key": "amd.com/gpu", "operator": "Exists"}]
    )
    assert pod(found, name)["nodeSelector"] == {"accelerator": "amd-mi300x"}
    assert {"key": "amd.com/gpu", "operator": "Exists"} in pod(found, name)["tolerations"]


@both
def test_it_does_not_select_pci_class_0300(name: str) -> None:
    """The upstream chart does; Instinct accelerators are class 12, so nothing would run."""
    assert "pci" not in yaml.safe_dump(pod(plan(), name)["nodeSelector"])


@both
def test_it_is_not_put_off_by_what_keeps_others_off(name: str) -> None:
    spec = pod(plan(), name)
    assert {"key": "CriticalAddonsOnly", "operator": "Exists"} in spec["tolerations"]
    assert spec["priorityClassName"] == "system-node-critical"


@both
def test_it_selects_its_own_pods(name: str) -> None:
    spec = the(plan(), "DaemonSet", name).inputs["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_the_two_select_different_pods() -> None:
    found = plan()
    first, second = (the(found, "DaemonSet", name).inputs["spec"]["selector"] for name in (PLUGIN, LABELLER))
    assert first != second


def test_everything_is_in_the_namespace_that_was_named() -> None:
    found = plan(namespace="amd-system")
    for resource in found.owned():
        metadata = resource.inputs.get("metadata")
        if metadata and not resource.type.split(":")[-1].startswith("Cluster"):
            assert metadata["namespace"] == "amd-system", resource.name
    (subject,) = the(found, "ClusterRoleBinding").inputs["subjects"]
    assert subject["namespace"] == "amd-system"


# -- the plugin -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("naming", ["single", "mixed"])
def test_the_plugin_is_told_how_to_name_gpus(naming: Any) -> None:
    assert f"-resource_naming_strategy={naming}" in container(plan(resource_naming=naming), PLUGIN)["command"]


def test_health_checks_need_privilege_and_nothing_else_does() -> None:
    assert "-pulse=30" in container(plan(), PLUGIN)["command"]
    assert container(plan(), PLUGIN)["securityContext"] == {"privileged": True}
    off = container(plan(health_check_seconds=0), PLUGIN)
    assert "-pulse=0" in off["command"]
    assert off["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_the_plugin_reaches_the_kubelet() -> None:
    """By the socket's folder, under the path at which the plugin looks for it."""
    found = plan()
    mounted = {mount["name"]: mount["mountPath"] for mount in container(found, PLUGIN)["volumeMounts"]}
    there = {volume["name"]: volume["hostPath"]["path"] for volume in pod(found, PLUGIN)["volumes"]}
    assert mounted == there == {"device-plugins": "/var/lib/kubelet/device-plugins", "sys": "/sys"}


# -- validation -------------------------------------------------------------------------------------------------------

MI300X = GpuValidation(default=ExpectedGpus(count=8, compute_partition="SPX", memory_partition="NPS1"))


def test_no_validation_without_the_argument() -> None:
    found = plan()
    assert "initContainers" not in pod(found, PLUGIN)
    assert "updateStrategy" not in the(found, "DaemonSet", PLUGIN).inputs["spec"]
    assert not [each for each in found.owned() if each.type.endswith(":ConfigMap")]


def test_gpus_are_validated_before_the_plugin_starts() -> None:
    found = plan(validation=MI300X)
    (validation,) = pod(found, PLUGIN)["initContainers"]
    assert validation["image"] == container(found, PLUGIN)["image"]
    volumes = {each["name"]: each for each in pod(found, PLUGIN)["volumes"]}
    assert {each["name"] for each in validation["volumeMounts"]} <= volumes.keys()
    assert volumes["validation-state"]["hostPath"] == {"path": "/run/gpufleet", "type": "DirectoryOrCreate"}
    declared = the(found, "ConfigMap").inputs
    assert volumes["declared-gpus"]["configMap"]["name"] == declared["metadata"]["name"]
    assert declared["data"] == {"_others": "GPUS=8 DEVICES=8 COMPUTE=SPX MEMORY=NPS1"}


def test_one_node_that_fails_stops_neither_pulumi_nor_the_update_of_others() -> None:
    daemon_set = the(plan(validation=MI300X), "DaemonSet", PLUGIN).inputs
    assert daemon_set["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "50%"}


def test_another_machine_restarts_no_plugin() -> None:
    def template(**nodes: ExpectedGpus) -> Any:
        found = plan(validation=GpuValidation(nodes=nodes))
        return the(found, "DaemonSet", PLUGIN).inputs["spec"]

    assert template(a=ExpectedGpus(count=8)) == template(a=ExpectedGpus(count=8), b=ExpectedGpus(count=4))


def test_a_test_needs_an_image_with_rvs() -> None:
    def image(**changes: Any) -> Any:
        found = plan(validation=dataclasses.replace(MI300X, **changes))
        return pod(found, PLUGIN)["initContainers"][0]["image"]

    assert image(level="medium") == "docker.io/rocm/test-runner:v1.5.1"
    assert image(level="long", image="registry.example/test-runner:1") == "registry.example/test-runner:1"


def test_the_kubelet_leaves_the_script_as_it_is() -> None:
    """It replaces references to variables in a command, and `$$`."""
    (validation,) = pod(plan(validation=MI300X), PLUGIN)["initContainers"]
    environment = {each["name"]: each.get("value", "") for each in validation["env"]}
    assert [expanded(each, environment) for each in validation["command"]] == validation["command"]
    assert expanded("$$ $(LEVEL) $(date)", environment) == "$ quick $(date)"


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (GpuValidation(), "validation.nodes: is empty, so the validation would fail on every node; list the nodes"),
        (dataclasses.replace(MI300X, timeout_seconds=0), "validation.timeout_seconds: 0 is no time limit"),
    ],
)
def test_validations_that_cannot_work(validation: GpuValidation, message: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        plan(validation=validation)


@both
def test_images_are_pinned_and_can_be_others(name: str) -> None:
    assert "1.31.0.9" in container(plan(), name)["image"]
    other = plan(plugin_image="registry.example/plugin:1", labeller_image="registry.example/labeller:2")
    assert container(other, name)["image"].startswith("registry.example/")


@pytest.mark.parametrize(
    ("naming", "compute", "memory", "name"),
    [
        ("single", "SPX", "NPS1", "amd.com/gpu"),
        ("single", "CPX", "NPS4", "amd.com/gpu"),
        ("mixed", "SPX", "NPS1", "amd.com/spx_nps1"),
        ("mixed", "CPX", "NPS4", "amd.com/cpx_nps4"),
    ],
)
def test_gpus_are_named_as_the_plugin_names_them(naming: Any, compute: Any, memory: Any, name: str) -> None:
    assert gpu_resource(naming, compute, memory) == name


def test_an_mi300x_has_eight_parts_at_most() -> None:
    assert PARTITIONS_PER_GPU == {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}


# -- the labeller -----------------------------------------------------------------------------------------------------


def test_the_labeller_is_asked_for_each_property() -> None:
    command = container(plan(), LABELLER)["command"]
    assert command == ["./k8s-node-labeller", *(f"-{name}" for name in LABELLER_PROPERTIES)]


@pytest.mark.parametrize("name", ["product-name", "compute-memory-partition", "vram"])
def test_the_labeller_tells_what_the_chart_leaves_out_too(name: str) -> None:
    assert name in LABELLER_PROPERTIES


@pytest.mark.parametrize("name", ["firmware", "driver-src-version"])
def test_the_labeller_does_not_flood_the_node(name: str) -> None:
    assert name not in LABELLER_PROPERTIES


def test_the_labeller_knows_its_node() -> None:
    (variable,) = container(plan(), LABELLER)["env"]
    assert variable == {"name": "DS_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def test_the_labeller_may_label_nodes_and_nothing_else() -> None:
    found = plan()
    role, binding = the(found, "ClusterRole").inputs, the(found, "ClusterRoleBinding").inputs
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update"]}]
    account = the(found, "ServiceAccount").inputs["metadata"]["name"]
    assert pod(found, LABELLER)["serviceAccountName"] == account
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", account)
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_the_plugin_has_no_permission() -> None:
    assert "serviceAccountName" not in pod(plan(), PLUGIN)


def test_the_labeller_starts_with_its_permission() -> None:
    found = plan()
    assert the(found, "ClusterRoleBinding").urn in the(found, "DaemonSet", LABELLER).depends_on


# -- from settings ----------------------------------------------------------------------------------------------------


def settings(*, naming: str = "single", partition: dict[str, str] | None = None, **pool: Any) -> BareMetalSettings:
    """Settings with one pool of eight GPUs and one runner that asks for eight devices."""
    accelerator = {"vendor": "amd", "model": "MI300X", "count": 8} | ({"partition": partition} if partition else {})
    node_pool = {
        "accelerator": accelerator,
        "allocatable": {"cpu": 190, "memory": "2200Gi", "ephemeralStorage": "3400Gi"},
        "labels": {"accelerator": "amd-mi300x"},
        "nodes": {"one": {"address": "192.0.2.1"}},
    } | pool
    return BareMetalSettings.model_validate(
        {
            "cluster": {
                "kind": "bareMetal",
                "name": "cluster",
                "kubeconfig": {"kind": "context", "context": "cluster"},
                "nodePools": {"mi300x": node_pool},
            },
            "devicePlugin": {"resourceNaming": naming},
            "projects": {
                "org": {
                    "configUrl": "https://github.com/org",
                    "namespace": "org",
                    "credentials": {"kind": "existingSecret", "secretName": "secret"},
                }
            },
            "runners": {"gpu": {"project": "org", "gpus": 8, "cpu": 16, "memory": "200Gi", "max": 1}},
        }
    )


CPX = {"compute": "CPX", "memory": "NPS4"}


def test_eight_gpus_under_cpx_are_64() -> None:
    (whole,) = settings().cluster.node_pools.values()
    (parts,) = settings(partition=CPX).cluster.node_pools.values()
    assert (whole.accelerator.devices, parts.accelerator.devices) == (8, 64)


@pytest.mark.parametrize(
    ("naming", "partition", "name"),
    [("single", None, "amd.com/gpu"), ("single", CPX, "amd.com/gpu"), ("mixed", CPX, "amd.com/cpx_nps4")],
)
def test_plugin_and_runners_agree_on_the_name(naming: str, partition: dict[str, str] | None, name: str) -> None:
    """Renamed in one place only, runners would stay pending for ever."""
    given = settings(naming=naming, partition=partition)
    found = recorded(lambda: conductor.build(given))
    (scale_set,) = arc_releases.scale_sets(found)
    (runner,) = scale_set.values["template"]["spec"]["containers"]
    assert runner["resources"]["requests"][name] == runner["resources"]["limits"][name] == 8
    assert [key for key in runner["resources"]["limits"] if key.startswith("amd.com/")] == [name]
    command = container(found, "amd-gpu-device-plugin")["command"]
    assert f"-resource_naming_strategy={naming}" in command


def test_it_runs_on_the_nodes_of_the_pools_and_bears_their_taints() -> None:
    taint = {"key": "amd.com/gpu", "value": "true", "effect": "NoSchedule"}
    found = recorded(lambda: conductor.build(settings(taints=[taint])))
    for name in ("amd-gpu-device-plugin", "amd-gpu-device-plugin-labeller"):
        spec = pod(found, name)
        assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64", "accelerator": "amd-mi300x"}
        assert {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
