"""NVIDIA's GPU operator: what it leaves alone on hosts that pin their toolkit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet.nvidia import Mps, NvidiaGpuOperator, NvidiaGpuOperatorArgs, TimeSlicing
from gpufleet.nvidia.gpu_operator import (
    NVIDIA_GPU_OPERATOR_REPOSITORY,
    NVIDIA_GPU_OPERATOR_VERSION,
    PINNED,
    operator_problems,
    value_at,
)
from gpufleet_tools.plan.plan import Plan
from tests.recording import on_cluster, recorded, release, the

PINNED_HOST = {"host_toolkit_pinned": True}
ANY_HOST = {"host_toolkit_pinned": False}

either = pytest.mark.parametrize("host", [PINNED_HOST, ANY_HOST], ids=["pinned", "not pinned"])


def operator(**args: Any) -> tuple[NvidiaGpuOperator, Plan]:
    """An operator with these arguments, and the plan that it is all of."""
    made: list[NvidiaGpuOperator] = []
    args = PINNED_HOST | args
    plan = recorded(lambda: made.append(NvidiaGpuOperator("gpus", NvidiaGpuOperatorArgs(**args), on_cluster())))
    return made[0], plan


def values(**args: Any) -> dict[str, Any]:
    """Chart values of an operator with these arguments."""
    return dict(release(operator(**args)[1], "gpu-operator").values)


# -- document 003 -----------------------------------------------------------------------------------------------------


def test_the_driver_is_the_hosts(document_003: str) -> None:
    assert "--set driver.enabled=false" in document_003
    assert values()["driver"] == {"enabled": False}


def test_namespace_and_chart_are_the_documents(document_003: str) -> None:
    command = re.search(r"-n (\S+) --create-namespace \\\n\s+nvidia/(\S+)", document_003)
    assert command
    found = release(operator()[1], "gpu-operator")
    assert (found.namespace, found.chart) == (command[1], command[2])


def test_the_version_is_exact_where_the_document_has_a_variable(document_003: str) -> None:
    """Unset, the variable takes the newest chart, which brings a newer toolkit and CDI."""
    assert '--version="${GPU_OPERATOR_VERSION}"' in document_003
    assert release(operator()[1], "gpu-operator").version == NVIDIA_GPU_OPERATOR_VERSION == "v26.7.0"


# -- the pin ----------------------------------------------------------------------------------------------------------


def test_trap_35_a_pinned_toolkit_is_left_alone() -> None:
    given = values(**PINNED_HOST)
    assert given["toolkit"] == {"enabled": False}
    assert given["cdi"] == {"enabled": False}


def test_without_a_pin_the_toolkit_is_the_operators() -> None:
    given = values(**ANY_HOST)
    assert given["toolkit"] == {"enabled": True}
    assert given["cdi"] == {"enabled": True}


def test_whether_it_is_pinned_has_to_be_said() -> None:
    with pytest.raises(TypeError):
        NvidiaGpuOperatorArgs()  # type: ignore[call-arg]


def test_the_default_runtime_is_required_of_the_host() -> None:
    assert "the container engine's default runtime is nvidia" in operator(**PINNED_HOST)[0].host_requirements
    assert operator(**ANY_HOST)[0].host_requirements == ["the NVIDIA driver is installed"]
    assert operator(**ANY_HOST, driver_enabled=True)[0].host_requirements == []


UNDOING: dict[str, dict[str, Any]] = {
    "toolkit.enabled: True": {"values": {"toolkit": {"enabled": True}}},
    "cdi.enabled: True": {"values": {"cdi": {"enabled": True}}},
    "cdi.nriPluginEnabled: True": {"values": {"cdi": {"enabled": False, "nriPluginEnabled": True}}},
    "driver.enabled: True": {"driver_enabled": True},
    "operator.runtimeClass: 'gpu'": {"values": {"operator": {"runtimeClass": "gpu"}}},
    "gpuCluster.deployCR: True": {"values": {"gpuCluster": {"deployCR": True}}},
    "host_default_runtime: 'runc'": {"host_default_runtime": "runc"},
    "devicePlugin.env: DEVICE_LIST_STRATEGY": {
        "values": {"devicePlugin": {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": "cdi-cri"}]}}
    },
}


@pytest.mark.parametrize("reason", UNDOING)
def test_what_undoes_the_pin_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match=r"^gpus: ") as refused:
        operator(**PINNED_HOST, **UNDOING[reason])
    assert reason in str(refused.value)
    assert ";" in str(refused.value), "what is needed instead"


@pytest.mark.parametrize("reason", [reason for reason in UNDOING if "nri" not in reason])
def test_without_a_pin_it_is_anyones_choice(reason: str) -> None:
    operator(**ANY_HOST, **UNDOING[reason])


@pytest.mark.parametrize(("key", "path"), [("toolkit", "toolkit.enabled"), ("cdi", "cdi.enabled")])
def test_a_key_that_is_replaced_falls_back_to_the_charts_default(key: str, path: str) -> None:
    """An image tag alone leaves `enabled` out, and the chart then takes its own: true."""
    (reason,) = operator_problems(NvidiaGpuOperatorArgs(host_toolkit_pinned=True, values={key: {"version": "v1"}}))
    assert str(reason).startswith(f"values.{path}: True")


def test_every_reason_is_told_at_once() -> None:
    args = NvidiaGpuOperatorArgs(
        host_toolkit_pinned=True,
        driver_enabled=True,
        host_default_runtime="runc",
        namespace="default",
        sharing=TimeSlicing(replicas=1),
        values={"toolkit": {"enabled": True}, "cdi": {"enabled": True}},
    )
    assert len([*operator_problems(args)]) == 6


def test_the_pins_defaults_are_the_charts(gpu_operator_chart: Any) -> None:
    """What is taken for left out has to be what the chart takes."""
    chart = yaml.safe_load(gpu_operator_chart.text)
    assert [pinned.default for pinned in PINNED] == [value_at(chart, pinned.path, None) for pinned in PINNED]


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_sharing_is_a_config_map_of_the_releases() -> None:
    """`create` needs name and data, or the chart does not render; without `default`, no node takes it."""
    made, plan = operator(sharing=TimeSlicing(replicas=10))
    given = release(plan, "gpu-operator").values["devicePlugin"]["config"]
    assert given["create"] is True
    assert given["default"] in given["data"]
    (resource,) = yaml.safe_load(given["data"]["default"])["sharing"]["timeSlicing"]["resources"]
    assert resource == {"name": made.resource, "replicas": 10}


def test_another_sharing_is_another_config_map() -> None:
    """The operator does not watch the ConfigMap: under the same name the plugin would go on as before."""
    names = {values(sharing=TimeSlicing(replicas=n))["devicePlugin"]["config"]["name"] for n in (2, 3, 3)}
    assert len(names) == 2


def test_without_sharing_there_is_no_config_map() -> None:
    assert "devicePlugin" not in values()


@either
def test_mig_does_not_overrule_the_file(host: dict[str, Any]) -> None:
    """The chart's `single` would reach the plugin as an environment variable, stronger than its file."""
    assert values(**host)["mig"] == {"strategy": "none"}
    for replaced in ({"strategy": "mixed"}, {}):
        with pytest.raises(ValueError, match=r"MIG .* is not supported"):
            operator(**host, values={"mig": replaced})


@either
def test_mig_that_a_host_set_up_stays(host: dict[str, Any], gpu_operator_chart: Any) -> None:
    """Left running, the chart's MIG manager would bring nodes to its default."""
    assert yaml.safe_load(gpu_operator_chart.text)["migManager"]["config"]["default"] == "all-disabled"
    assert values(**host)["migManager"] == {"enabled": False}


@either
def test_mps_and_doubled_configurations_are_refused(host: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be TimeSlicing"):
        operator(**host, sharing=Mps(replicas=4))
    with pytest.raises(ValueError, match=r"values\.devicePlugin: would replace"):
        operator(**host, sharing=TimeSlicing(replicas=2), values={"devicePlugin": {"enabled": True}})


# -- release ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        (None, "gpu-operator", NVIDIA_GPU_OPERATOR_REPOSITORY),
        ("oci://registry.example/nvidia", "oci://registry.example/nvidia/gpu-operator", None),
        ("/srv/charts", "/srv/charts/gpu-operator-v26.7.0.tgz", None),
    ],
)
def test_its_chart_comes_by_exact_version_from_anywhere(mirror: str | None, chart: str, repository: str | None) -> None:
    found = release(operator(chart_mirror=mirror)[1], "gpu-operator")
    assert (found.chart, found.version, found.repository) == (chart, NVIDIA_GPU_OPERATOR_VERSION, repository)


def test_trap_14_hooks_run() -> None:
    """They upgrade and clean up CRDs; rendered objects have none. The upgrade wants no validation by OpenAPI."""
    found = the(operator()[1], "Release")
    assert found.type == "kubernetes:helm.sh/v3:Release"
    assert found.inputs["disableOpenapiValidation"] is True


def test_it_owns_a_namespace_that_takes_privileged_pods() -> None:
    _, plan = operator()
    assert the(plan, "Namespace").inputs["metadata"] == {
        "name": "gpu-operator",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    }
    assert the(plan, "Namespace").urn in the(plan, "Release").depends_on


def test_the_runtime_class_is_the_operators() -> None:
    """It creates `nvidia` itself; a second owner would take it away on destroy."""
    assert not [resource for resource in operator()[1].resources if resource.type.endswith(":RuntimeClass")]


def test_trap_30_node_feature_discovery_comes_once() -> None:
    assert values()["nfd"] == {"enabled": True}
    assert values(nfd=False)["nfd"] == {"enabled": False}
    assert "node-feature-discovery" not in values(nfd=False)


def test_trap_19_operands_and_discovery_run_on_tainted_nodes() -> None:
    taint = {"key": "ci", "operator": "Exists"}
    given = values(tolerations=[taint])
    for tolerations in (
        given["daemonsets"]["tolerations"],
        given["node-feature-discovery"]["worker"]["tolerations"],
    ):
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in tolerations
        assert taint in tolerations


@either
def test_its_values_are_known_to_the_chart(host: dict[str, Any], gpu_operator_chart: Any) -> None:
    given = values(**host, sharing=TimeSlicing(replicas=2))
    assert gpu_operator_chart.unknown(given, free=(("devicePlugin", "config", "data"),)) == []


# -- the real Helm ----------------------------------------------------------------------------------------------------


@either
def test_the_chart_renders(render: Callable[[Any], list[dict[str, Any]]], host: dict[str, Any]) -> None:
    manifests = render(release(operator(**host, sharing=TimeSlicing(replicas=2))[1], "gpu-operator"))
    (policy,) = (m["spec"] for m in manifests if m["kind"] == "ClusterPolicy")
    kept = host["host_toolkit_pinned"]
    assert policy["driver"]["enabled"] is False
    assert (policy["toolkit"]["enabled"], policy["cdi"]["enabled"]) == (not kept, not kept)
    names = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
    assert policy["devicePlugin"]["config"]["name"] in names
