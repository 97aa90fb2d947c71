"""NVIDIA's device plugin: document 004's configuration, and what keeps a plugin off its nodes."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from gpufleet.nvidia import Mig, Mps, NvidiaDevicePlugin, NvidiaDevicePluginArgs, TimeSlicing
from gpufleet.nvidia.device_plugin import (
    NVIDIA_DEVICE_PLUGIN_REPOSITORY,
    NVIDIA_DEVICE_PLUGIN_VERSION,
    OWN_VALUES,
    plugin_problems,
)
from gpufleet_tools.plan.plan import Plan
from tests.recording import on_cluster, recorded, release, the

ROOT = pathlib.Path(__file__).resolve().parents[3]

GOLDEN: dict[str, Any] = yaml.safe_load((ROOT / "tests/golden/document-004.device-plugin.yaml").read_text())

SHARED = {"sharing": TimeSlicing(replicas=10)}
"""Document 004's sharing."""

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def plugin(**args: Any) -> tuple[NvidiaDevicePlugin, Plan]:
    """A plugin with these arguments, and the plan that it is all of."""
    made: list[NvidiaDevicePlugin] = []
    plan = recorded(lambda: made.append(NvidiaDevicePlugin("gpus", NvidiaDevicePluginArgs(**args), on_cluster())))
    return made[0], plan


def values(**args: Any) -> dict[str, Any]:
    """Chart values of a plugin with these arguments."""
    _, plan = plugin(**args)
    return dict(release(plan, args.get("release", "nvdp")).values)


def config(given: Mapping[str, Any]) -> dict[str, Any]:
    """The plugin's configuration file, read."""
    found = yaml.safe_load(given["config"]["map"]["default"])
    assert isinstance(found, dict)
    return found


def tolerates_bare_gpu_taint(tolerations: list[dict[str, Any]]) -> bool:
    """Document 004's taint has no value, which only `Exists` or an empty value tolerates."""
    return any(
        toleration["key"] == "nvidia.com/gpu"
        and toleration.get("effect") in (None, "NoSchedule")
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == "")
        for toleration in tolerations
    )


# -- document 004, key by key -----------------------------------------------------------------------------------------

ABSENT = "absent"

DEVIATIONS: dict[str, tuple[object, object, str]] = {
    "config.name": ("", ABSENT, "an empty name says nothing: the release makes the ConfigMap and names it"),
    "config.map.default.sharing.timeSlicing.failRequestsGreaterThanOne": (
        ABSENT,
        True,
        "two replicas can be of one GPU; the plugin's README recommends to refuse a request for two",
    ),
    "migStrategy": (ABSENT, "none", "with a configuration file, SYS_ADMIN unless this is a value too"),
    "deviceListStrategy": (ABSENT, "envvar", "with a configuration file, SYS_ADMIN unless this is a value too"),
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": (
        ABSENT,
        [{"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]}],
        "the label that document 004's node pool sets, and no other",
    ),
    "tolerations": (
        ABSENT,
        [{"key": "CriticalAddonsOnly", "operator": "Exists"}, GPU_TOLERATION],
        "the chart's own, said here because further ones would replace them",
    ),
    "gfd.enabled": (ABSENT, False, "the chart's own, said"),
    "nfd.enabled": (ABSENT, False, "the chart's own as long as gfd is off; said so that gfd brings no second one"),
}
"""Path, document 004's value, ours, and why. The chart is 0.20.0, where the document has 0.17.0."""


def flat(value: object, path: str = "") -> dict[str, object]:
    """Every leaf by its dotted path; a configuration file counts as what it says."""
    if path == "config.map.default":
        value = yaml.safe_load(str(value))
    if not isinstance(value, Mapping):
        return {path: value}
    below = [flat(inner, f"{path}.{key}" if path else key) for key, inner in value.items()]
    return {leaf: found for part in below for leaf, found in part.items()}


def test_the_golden_values_are_the_documents(document_004: str) -> None:
    (block,) = re.findall(r"```shell\n(config:\n.*?)```", document_004, re.DOTALL)
    assert flat(GOLDEN) == flat(yaml.safe_load(block))


def test_the_values_are_the_documents_but_for_the_table() -> None:
    theirs, ours = flat(GOLDEN), flat(values(**SHARED))
    found = {
        path: (theirs.get(path, ABSENT), ours.get(path, ABSENT))
        for path in theirs | ours
        if theirs.get(path, ABSENT) != ours.get(path, ABSENT)
    }
    assert found == {path: (before, after) for path, (before, after, _) in DEVIATIONS.items()}


def test_every_deviation_has_a_reason() -> None:
    assert all(reason for _, _, reason in DEVIATIONS.values())


def test_release_and_namespace_are_the_documents(document_004: str) -> None:
    command = re.search(r"helm upgrade -i (\S+) nvdp/(\S+) --namespace (\S+)", document_004)
    assert command
    found = release(plugin()[1], command[1])
    assert (found.chart, found.namespace) == (command[2], command[3])
    assert f"helm repo add nvdp {found.repository}\n" in document_004


def test_the_version_is_newer_than_the_documents(document_004: str) -> None:
    assert "--version 0.17.0" in document_004
    assert NVIDIA_DEVICE_PLUGIN_VERSION == "0.20.0"


def test_flags_are_the_arguments() -> None:
    flags = config(
        values(
            device_list_strategy=("cdi-annotations", "cdi-cri"),
            device_id_strategy="index",
            driver_root="/run/nvidia/driver",
            pass_device_specs=True,
            fail_on_init_error=False,
        )
    )["flags"]
    assert flags == {
        "migStrategy": "none",
        "failOnInitError": False,
        "nvidiaDriverRoot": "/run/nvidia/driver",
        "plugin": {
            "passDeviceSpecs": True,
            "deviceListStrategy": ["cdi-annotations", "cdi-cri"],
            "deviceIDStrategy": "index",
        },
    }


@pytest.mark.parametrize(
    "args",
    [
        {},
        SHARED,
        {"gfd": True, "nfd": True, "tolerations": [{"key": "ci", "operator": "Exists"}]},
        {"device_list_strategy": ("cdi-cri",), "pass_device_specs": True, "runtime_class_name": "nvidia"},
    ],
)
def test_its_values_are_known_to_the_chart(args: dict[str, Any], device_plugin_chart: Any) -> None:
    """`nfd.enabled` is in the chart's dependencies (Chart.yaml), and so not in the file of values."""
    assert device_plugin_chart.unknown(values(**args), free=(("config", "map"),)) == [("nfd", "enabled")]


# -- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_it_has_a_namespace_of_its_own(namespace: str) -> None:
    """The chart does not render in `default`; in `kube-system`, destroying the component would destroy the cluster."""
    with pytest.raises(ValueError, match=f"gpus: namespace: '{namespace}' already exists"):
        plugin(namespace=namespace)
    _, plan = plugin(namespace="nvidia")
    assert the(plan, "Namespace").inputs["metadata"]["name"] == release(plan, "nvdp").namespace == "nvidia"
    assert the(plan, "Namespace").urn in the(plan, "Release").depends_on


def test_its_namespace_takes_pods_that_mount_the_host() -> None:
    labels = the(plugin()[1], "Namespace").inputs["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}


def test_sys_admin_is_not_needed() -> None:
    """Trap: with a configuration file the chart looks at these two values only."""
    given = values(**SHARED)
    assert given["migStrategy"] == "none"
    assert given["deviceListStrategy"] == "envvar"
    assert "volume-mounts" not in given["deviceListStrategy"]


@pytest.mark.parametrize("key", OWN_VALUES)
def test_values_do_not_overrule_the_file_unseen(key: str) -> None:
    """Trap: a value is an environment variable, and that is stronger than the file."""
    with pytest.raises(ValueError, match=rf"values\.{key}: follows from the arguments"):
        plugin(values={key: {}})


def test_value_and_file_say_the_same() -> None:
    given = values(device_list_strategy=("cdi-annotations", "cdi-cri"), driver_root="/run/nvidia/driver")
    flags = config(given)["flags"]
    assert given["migStrategy"] == flags["migStrategy"]
    assert given["deviceListStrategy"].split(",") == flags["plugin"]["deviceListStrategy"]
    assert given["nvidiaDriverRoot"] == flags["nvidiaDriverRoot"]


def test_trap_18_the_name_that_pods_ask_for_is_known() -> None:
    """Karpenter provisions nothing for a resource that it does not know."""
    assert plugin(**SHARED)[0].resource == "nvidia.com/gpu"
    renamed, plan = plugin(sharing=TimeSlicing(replicas=4, rename_by_default=True))
    assert renamed.resource == "nvidia.com/gpu.shared"
    assert config(release(plan, "nvdp").values)["sharing"]["timeSlicing"]["renameByDefault"] is True


def test_trap_19_it_runs_by_a_label_that_the_nodes_have() -> None:
    """The chart's `feature.node.kubernetes.io/pci-10de.present` is not what a stand-alone discovery sets."""
    assert "pci-10de" not in yaml.safe_dump(values())
    given = values(node_selector={"accelerator": "a10"})["affinity"]["nodeAffinity"]
    (term,) = given["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "accelerator", "operator": "In", "values": ["a10"]}]
    assert "nodeSelector" not in values(), "both would have to hold"


def test_trap_19_discovery_runs_on_tainted_nodes(device_plugin_chart: Any) -> None:
    """The chart's own worker wants the value `present`, which document 004's taint has not."""
    charts_own = yaml.safe_load(device_plugin_chart.text)["nfd"]["worker"]["tolerations"]
    assert not tolerates_bare_gpu_taint(charts_own)
    taint = {"key": "ci", "operator": "Exists"}
    given = values(nfd=True, tolerations=[taint])
    for tolerations in (given["tolerations"], given["nfd"]["worker"]["tolerations"]):
        assert tolerates_bare_gpu_taint(tolerations)
        assert taint in tolerations


@pytest.mark.parametrize("gfd", [True, False])
@pytest.mark.parametrize("nfd", [True, False])
def test_trap_30_node_feature_discovery_comes_when_asked_for_and_only_then(gfd: bool, nfd: bool) -> None:
    """The chart's condition is `nfd.enabled,gfd.enabled`: the first that is there decides."""
    given = values(gfd=gfd, nfd=nfd)
    assert given["nfd"]["enabled"] is nfd
    assert given["gfd"]["enabled"] is gfd


def test_the_cpu_manager_needs_a_privileged_plugin() -> None:
    """The flag alone sets the paths, and then the plugin may not open them."""
    assert values(pass_device_specs=True)["compatWithCPUManager"] is True
    assert "compatWithCPUManager" not in values()


@pytest.mark.parametrize(
    ("args", "root"),
    [({}, None), ({"device_list_strategy": ("cdi-cri",)}, "/"), ({"driver_root": "/opt/nvidia"}, "/opt/nvidia")],
)
def test_the_hosts_root_is_mounted_for_cdi_only(args: dict[str, Any], root: str | None) -> None:
    assert values(**args).get("nvidiaDriverRoot") == root


def test_nodes_share_gpus_as_their_label_says() -> None:
    """Without the label as `sharing` says: the chart falls back on the configuration `default`."""
    files = values(**SHARED, configs={"exclusive": None, "mps-4": Mps(replicas=4)})["config"]["map"]
    assert {name: yaml.safe_load(text).get("sharing", {}).keys() for name, text in files.items()} == {
        "default": {"timeSlicing"},
        "exclusive": set(),
        "mps-4": {"mps"},
    }


def test_a_strategy_among_the_values_would_override_that_of_a_configuration() -> None:
    """`NewConfig` in api/config/v1/config.go: environment before file."""
    parts = Mig(profile="1g.10gb", instances=7)
    assert values(**SHARED)["migStrategy"] == "none"
    given = values(**SHARED, configs={"mig-1g.10gb": parts})
    assert "migStrategy" not in given
    strategies = {name: yaml.safe_load(text)["flags"]["migStrategy"] for name, text in given["config"]["map"].items()}
    assert strategies == {"default": "none", "mig-1g.10gb": "single"}


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"mig_strategy": "single"}, r"MIG \(single\) is not supported"),
        ({"mig_strategy": "mixed"}, r"MIG \(mixed\) is not supported"),
        ({"sharing": {"mps": {"replicas": 4}}}, "is not TimeSlicing, Mps or Mig"),
        ({"configs": {"t4": TimeSlicing(replicas=1)}}, "configs.t4.replicas: 1 is too few"),
        ({"configs": {"default": None}}, "configs.default: is reserved for nodes without the label"),
        ({"sharing": TimeSlicing(replicas=1)}, "at least 2"),
        ({"device_list_strategy": ()}, "device_list_strategy: is empty"),
        ({"node_selector": {}}, "node_selector: is empty"),
    ],
)
def test_what_cannot_work_is_refused(args: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plugin(**args)


def test_every_reason_is_told_at_once() -> None:
    args = NvidiaDevicePluginArgs(namespace="default", mig_strategy="mixed", values={"config": {}})
    assert len([*plugin_problems(args)]) == 3


# -- release and RuntimeClass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        (None, "nvidia-device-plugin", NVIDIA_DEVICE_PLUGIN_REPOSITORY),
        ("oci://registry.example/nvidia", "oci://registry.example/nvidia/nvidia-device-plugin", None),
        ("/srv/charts", f"/srv/charts/nvidia-device-plugin-{NVIDIA_DEVICE_PLUGIN_VERSION}.tgz", None),
    ],
)
def test_its_chart_comes_by_exact_version_from_anywhere(mirror: str | None, chart: str, repository: str | None) -> None:
    found = release(plugin(chart_mirror=mirror)[1], "nvdp")
    assert (found.chart, found.version, found.repository) == (chart, NVIDIA_DEVICE_PLUGIN_VERSION, repository)


def test_the_runtime_class_comes_by_choice_and_first() -> None:
    assert not [resource for resource in plugin()[1].resources if resource.type.endswith(":RuntimeClass")]
    _, plan = plugin(runtime_class=True, runtime_class_name="nvidia")
    found = the(plan, "RuntimeClass")
    assert found.inputs["metadata"] == {"name": "nvidia"}
    assert found.inputs["handler"] == "nvidia"
    assert found.urn in the(plan, "Release").depends_on
    assert release(plan, "nvdp").values["runtimeClassName"] == "nvidia"


def test_further_values_are_laid_over_its_own() -> None:
    given = values(values={"priorityClassName": "system-cluster-critical"})
    assert given["priorityClassName"] == "system-cluster-critical"
    assert config(given)["version"] == "v1"


# -- the real Helm ----------------------------------------------------------------------------------------------------

Render = Callable[[Any], list[dict[str, Any]]]


def test_the_chart_renders_without_sys_admin(render: Render) -> None:
    manifests = render(release(plugin(**SHARED)[1], "nvdp"))
    (daemon,) = (
        m for m in manifests if m["kind"] == "DaemonSet" and m["metadata"]["name"] == "nvdp-nvidia-device-plugin"
    )
    pod = daemon["spec"]["template"]["spec"]
    for container in pod["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    (configs,) = (m for m in manifests if m["kind"] == "ConfigMap")
    assert yaml.safe_load(configs["data"]["default"]) == config(values(**SHARED))
    assert tolerates_bare_gpu_taint(pod["tolerations"])


def test_as_document_004_writes_it_the_plugin_has_sys_admin(render: Render) -> None:
    """With the values' own strategies left out, the chart expects the worst of the file."""
    literal = dataclasses.replace(release(plugin()[1], "nvdp"), values=GOLDEN)
    assert "SYS_ADMIN" in yaml.safe_dump_all(render(literal))
    assert "SYS_ADMIN" not in yaml.safe_dump_all(render(release(plugin(**SHARED)[1], "nvdp")))


@pytest.mark.parametrize(("gfd", "nfd", "workers"), [(True, False, 0), (True, True, 1), (False, False, 0)])
def test_node_feature_discovery_is_rendered_once_or_not(render: Render, gfd: bool, nfd: bool, workers: int) -> None:
    manifests = render(release(plugin(gfd=gfd, nfd=nfd)[1], "nvdp"))
    found = [m for m in manifests if m["kind"] == "DaemonSet" and "node-feature-discovery" in m["metadata"]["name"]]
    assert len(found) == workers
    for worker in found:
        assert tolerates_bare_gpu_taint(worker["spec"]["template"]["spec"]["tolerations"])
