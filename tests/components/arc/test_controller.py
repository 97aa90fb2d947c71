"""The ARC controller: the values of its chart, and its reference for scale sets."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet.arc import ArcController, ArcControllerArgs
from gpufleet.arc.charts import ARC_REGISTRY
from gpufleet.arc.controller import ARC_VERSION, listener_metrics, service_account_name
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.plan import Plan
from tests.recording import on_cluster, recorded, release, the


def controller(**args: Any) -> tuple[ArcController, Plan]:
    """A controller with these arguments, and the plan that it is all of."""
    made: list[ArcController] = []
    plan = recorded(lambda: made.append(ArcController("arc", ArcControllerArgs(**args), on_cluster())))
    return made[0], plan


def values(**args: Any) -> dict[str, Any]:
    """Chart values of a controller with these arguments."""
    _, plan = controller(**args)
    return dict(plan.releases()[0].values)


def test_it_owns_its_namespace_and_its_release() -> None:
    _, plan = controller(namespace="runners-system", release="gha")
    assert the(plan, "Namespace").inputs["metadata"] == {"name": "runners-system"}
    assert release(plan, "gha").namespace == "runners-system"
    assert the(plan, "Namespace").urn in the(plan, "Release").depends_on


def test_the_namespace_is_not_made_by_helm_too() -> None:
    """Two owners: Helm would not remove it, and Pulumi would find it there already."""
    _, plan = controller()
    assert "createNamespace" not in the(plan, "Release").inputs


@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        (None, f"{ARC_REGISTRY}/gha-runner-scale-set-controller", None),
        ("oci://registry.example/arc", "oci://registry.example/arc/gha-runner-scale-set-controller", None),
        ("https://charts.example", "gha-runner-scale-set-controller", "https://charts.example"),
        ("/srv/charts", f"/srv/charts/gha-runner-scale-set-controller-{ARC_VERSION}.tgz", None),
    ],
)
def test_its_chart_comes_by_exact_version_from_anywhere(mirror: str | None, chart: str, repository: str | None) -> None:
    made, plan = controller(chart_mirror=mirror)
    found = release(plan, "arc")
    assert (found.chart, found.version, found.repository) == (chart, ARC_VERSION, repository)
    assert arc_releases.controller(plan) == found
    assert not arc_releases.scale_sets(plan)
    assert made.reference.chart_mirror == mirror


def test_scale_sets_learn_version_and_account_from_it() -> None:
    made, plan = controller(version="0.14.1", release="gha", namespace="runners-system")
    assert made.reference.version == release(plan, "gha").version == "0.14.1"
    assert made.reference.service_account == "gha-gha-rs-controller"
    assert made.reference.namespace == "runners-system"


@pytest.mark.parametrize(
    ("name", "account"),
    [
        ("arc", "arc-gha-rs-controller"),
        ("gha-rs-controller", "gha-rs-controller"),
        ("my-gha-rs-controller-2", "my-gha-rs-controller-2"),
    ],
)
def test_the_account_is_named_as_the_chart_names_it(name: str, account: str) -> None:
    assert service_account_name(name) == account


def test_metrics_have_all_three_addresses() -> None:
    """With one missing, the chart turns metrics off."""
    assert values()["metrics"] == {
        "controllerManagerAddr": ":8080",
        "listenerAddr": ":8080",
        "listenerEndpoint": "/metrics",
    }


def test_without_metrics_none_is_told_of_any() -> None:
    made, plan = controller(metrics=False)
    assert "metrics" not in release(plan, "arc").values
    assert made.reference.listener_metrics is None


def test_it_logs_less_than_the_chart_would() -> None:
    assert values()["flags"]["logLevel"] == "info"
    assert values(log_level="debug")["flags"]["logLevel"] == "debug"


def test_flags_of_the_controller() -> None:
    given = values(update_strategy="eventual", client_limits={"qps": 60, "burst": 90})["flags"]
    limits = {"k8sClientRateLimiterQPS": 60, "k8sClientRateLimiterBurst": 90}
    assert given == {"logLevel": "info", "updateStrategy": "eventual", **limits}


def test_further_values_are_laid_over_its_own() -> None:
    given = values(values={"replicaCount": 2, "metrics": {}})
    assert given["replicaCount"] == 2
    assert given["metrics"] == {}
    assert given["flags"] == {"logLevel": "info"}


def test_controller_and_listeners_run_where_they_are_put() -> None:
    """A listener's container has to be called `listener`: one of another name would run beside it."""
    placed = {
        "node_selector": {"gpu-runners/nodes": "system"},
        "requests": {"cpu": "100m"},
        "listener_requests": {"memory": "64Mi"},
    }
    made, plan = controller(**placed)
    given = release(plan, "arc").values
    assert given["nodeSelector"] == {"gpu-runners/nodes": "system"}
    assert given["resources"] == {"requests": {"cpu": "100m"}}
    assert made.reference.listener_template == {
        "spec": {
            "containers": [{"name": "listener", "resources": {"requests": {"memory": "64Mi"}}}],
            "nodeSelector": {"gpu-runners/nodes": "system"},
        }
    }


def test_elsewhere_nothing_is_said_of_listeners() -> None:
    assert controller()[0].reference.listener_template is None
    assert values().keys() & {"nodeSelector", "resources"} == set()


def test_its_values_are_known_to_the_chart(controller_chart: Any) -> None:
    assert controller_chart.unknown(values()) == []


# -- listeners' metrics -----------------------------------------------------------------------------------------------

BOUNDED = {"name", "namespace", "organization", "repository", "job_result"}
"""Labels with few values. Those that are left out grow in number with workflows and branches, each value a series that
never ends."""


def metrics() -> dict[str, dict[str, Any]]:
    """Every metric of the value, by name."""
    return {name: metric for kind in listener_metrics().values() for name, metric in kind.items()}


def test_scale_sets_are_given_the_metrics() -> None:
    made, _ = controller()
    assert made.reference.listener_metrics == listener_metrics()


@pytest.mark.parametrize("name", sorted(metrics()))
def test_labels_are_bounded(name: str) -> None:
    assert set(metrics()[name]["labels"]) <= BOUNDED


@pytest.mark.parametrize("name", sorted(listener_metrics()["gauges"]))
def test_gauges_tell_scale_sets_apart(name: str) -> None:
    assert {"name", "namespace"} <= set(metrics()[name]["labels"])


@pytest.mark.parametrize("name", sorted(name for name in metrics() if "_jobs_" in name or "_job_" in name))
def test_job_metrics_have_no_labels_that_are_empty_there(name: str) -> None:
    assert not {"name", "namespace"} & set(metrics()[name]["labels"])


def test_every_metric_of_the_chart_is_listed(controller_chart: Any, scale_set_chart: Any) -> None:
    """One that is left out is not exposed at all."""
    documented = scale_set_chart.commented_out("listenerMetrics")
    assert {kind: set(given) for kind, given in listener_metrics().items()} == {
        kind: set(known) for kind, known in documented.items()
    }


def test_labels_are_the_charts(scale_set_chart: Any) -> None:
    """A listener does not start with a label that its metric does not have."""
    documented = scale_set_chart.commented_out("listenerMetrics")
    for kind, known in documented.items():
        for name, metric in known.items():
            assert set(listener_metrics()[kind][name]["labels"]) <= set(metric["labels"]), name


def test_buckets_reach_githubs_longest_job() -> None:
    for metric in listener_metrics()["histograms"].values():
        assert metric["buckets"] == sorted(metric["buckets"])
        assert metric["buckets"][-1] == 6 * 60 * 60
