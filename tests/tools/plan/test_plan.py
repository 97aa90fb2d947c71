"""What the stacks of this repository would create, and what a plan says of it."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pulumi
import pytest
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace
from pulumi_kubernetes.helm.v3 import Release, ReleaseArgs, RepositoryOptsArgs
from pulumi_kubernetes.rbac.v1 import ClusterRole

from gpufleet_tools.check.findings import Report
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.document import document
from gpufleet_tools.plan.plan import UNKNOWN, Hidden, Plan, Unknown, revealed, shown
from gpufleet_tools.plan.stack import STAND_IN, Stack
from tests.input_types import wrong_inputs
from tests.recording import on_cluster, recorded, release

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"


# -- golden plans -----------------------------------------------------------------------------------------------------


def golden(plan: Plan) -> str:
    """The plan as it is committed: the document without findings, which come and go with the date."""
    return document(plan, Report((), ())).model_dump_json(indent=2, exclude={"findings"}) + "\n"


@pytest.mark.generated
def test_the_plan_is_the_golden_one(each_stack: Stack, plan: Plan) -> None:
    """A resource that goes from the golden plan, or is renamed in it, is one that `pulumi up` deletes."""
    path = GOLDEN / f"{each_stack.name}.plan.json"
    if os.environ.get("ACCEPT") == "1":
        path.write_text(golden(plan))
    changes = "\n".join(difference(path.read_text() if path.exists() else "", golden(plan)))
    assert not changes, f"{changes}\n{path.name} is out of date; if that is what you want: make generate"


def test_there_is_no_golden_plan_without_a_stack(each_stack: Stack) -> None:
    stacks = {path.name.removesuffix(".plan.json") for path in GOLDEN.glob("*.plan.json")}
    assert all((each_stack.root / f"Pulumi.{name}.yaml").exists() for name in stacks)


def difference(before: str, after: str) -> list[str]:
    """What has come, gone and changed, one line each."""
    old, new = (by_urn(text) for text in (before, after))
    lines = [f"gone: {urn}" for urn in old.keys() - new.keys()]
    lines += [f"new: {urn}" for urn in new.keys() - old.keys()]
    for urn in old.keys() & new.keys():
        lines += [f"changed: {urn}: {key}" for key in new[urn] if old[urn].get(key) != new[urn][key]]
    return sorted(lines) or (["changed: outputs or form"] if before != after else [])


def by_urn(text: str) -> dict[str, dict[str, Any]]:
    return {each["urn"]: each for each in json.loads(text)["resources"]} if text else {}


def namespaces(*names: str) -> Plan:
    """A plan with these namespaces."""

    def build() -> None:
        opts = on_cluster()
        for name in names:
            Namespace(name, metadata={"name": f"the-{names[0]}"}, opts=opts)

    return recorded(build)


def test_what_has_changed_is_named() -> None:
    before, after = golden(namespaces("a", "b")), golden(namespaces("b", "c"))
    urn = "urn:pulumi:test::gpu-runners::kubernetes:core/v1:Namespace"
    assert difference(before, after) == [f"changed: {urn}::b: inputs", f"gone: {urn}::a", f"new: {urn}::c"]
    assert difference(before, before) == []
    assert difference("", before)[0] == f"new: {urn}::a"


def test_no_secret_is_in_a_golden_plan(plan: Plan) -> None:
    assert STAND_IN not in golden(plan)


# -- previewed twice --------------------------------------------------------------------------------------------------


def registered(plan: Plan) -> set[tuple[str, str, str | None]]:
    return {(resource.type, resource.name, resource.parent) for resource in plan.resources}


def test_what_is_created_does_not_hang_on_outputs(each_stack: Stack, plan: Plan) -> None:
    """A resource made inside an apply is missing from the preview of a new stack, and there in its `up`."""
    assert registered(plan) == registered(each_stack.plan(unknown_outputs=False))


def test_a_resource_made_inside_an_apply_shows() -> None:
    def build() -> None:
        opts = on_cluster()
        first = Namespace("first", metadata={"name": "one"}, opts=opts)
        first.id.apply(lambda id: Namespace("second", opts=opts))

    assert registered(recorded(build)) != registered(recorded(build, unknown_outputs=False))


# -- inputs against the SDK's hints -----------------------------------------------------------------------------------


def test_inputs_are_what_the_sdk_expects(plan: Plan) -> None:
    assert wrong_inputs(plan) == []


def daemon_set(**container: Any) -> Plan:
    """A DaemonSet, with a container as given."""
    pod = {"containers": [{"name": "one", "image": "example.test/one"} | container]}
    labels = {"app": "one"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return recorded(lambda: DaemonSet("set", metadata={"name": "one"}, spec=spec, opts=on_cluster()))


CONTAINER = "set.spec.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        ({"imagePullPolic": "Always"}, "imagePullPolic: ContainerArgs has no such property"),
        ({"tty": "true"}, "tty: 'true' is no bool"),
        ({"command": "sh"}, "command: 'sh' is no "),
        ({"command": ["sh", 1]}, "command[1]: 1 is no str"),
        ({"env": [{"value": "x"}]}, "env[0].name: is missing"),
        ({"securityContext": True}, "securityContext: True is no SecurityContextArgs"),
        ({"resources": {"limits": {"amd.com/gpu": True}}}, "resources.limits.amd.com/gpu: True is no str"),
        ({"ports": [{"containerPort": "80"}]}, "ports[0].containerPort: '80' is no int"),
    ],
)
def test_a_wrong_input_is_found(container: dict[str, Any], problem: str) -> None:
    (found,) = wrong_inputs(daemon_set(**container))
    assert found.startswith(f"{CONTAINER}.{problem}")


def test_right_inputs_are_let_through() -> None:
    quantities = {"limits": {"amd.com/gpu": 2, "memory": "1Gi"}}
    probe = {"httpGet": {"port": "http"}}
    assert wrong_inputs(daemon_set(resources=quantities, livenessProbe=probe, command=["sh"], tty=True)) == []
    assert wrong_inputs(daemon_set(image_pull_policy="Always")) == []  # The SDK knows both of its spellings.
    assert wrong_inputs(daemon_set(readinessProbe={"httpGet": {"port": 80}})) == []


def test_a_wrong_input_of_a_release_is_found() -> None:
    def build() -> None:
        values = {"template": {"spec": {"containers": [{"nam": "runner"}]}}}
        Release(
            "set",
            ReleaseArgs(name="set", namespace="n", chart="gha-runner-scale-set", version="1.0.0", values=values),
            opts=on_cluster(),
        )

    assert sorted(wrong_inputs(recorded(build))) == [
        "set.values.template.spec.containers[0].nam: ContainerArgs has no such property",
        "set.values.template.spec.containers[0].name: is missing",
    ]


# -- what a plan says -------------------------------------------------------------------------------------------------


def test_objects_are_manifests(plan: Plan) -> None:
    assert plan.objects()
    for each in plan.objects():
        assert each.keys() >= {"apiVersion", "kind", "metadata"}
        assert each["metadata"]["name"]


def test_releases_and_providers_are_no_objects() -> None:
    def build() -> None:
        opts = on_cluster()
        Namespace("made", metadata={"name": "made"}, opts=opts)
        Namespace.get("found", "found", opts=opts)
        Release("release", ReleaseArgs(name="r", namespace="n", chart="c", version="1.0.0"), opts=opts)

    plan = recorded(build)
    assert plan.objects() == [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made"}}]
    (only,) = plan.releases()
    assert (only.name, only.namespace, only.chart, only.version, only.values) == ("r", "n", "c", "1.0.0", {})
    assert only.repository is None


def test_what_is_expected_is_named_with_its_namespace() -> None:
    def build() -> None:
        opts = on_cluster()
        ConfigMap.get("one", "space/settings", opts=opts)
        DaemonSet.get("two", "kube-system/proxy", opts=opts)
        ClusterRole.get("three", "reader", opts=opts)

    assert sorted(recorded(build).expected_objects(), key=lambda each: each["kind"]) == [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "space", "name": "settings"}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "proxy"}},
    ]


@pytest.mark.parametrize(
    ("chart", "kind"),
    [
        ("oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set", "scale set"),
        ("gha-runner-scale-set", "scale set"),
        ("/srv/charts/gha-runner-scale-set-0.14.2.tgz", "scale set"),
        ("oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set-controller", "controller"),
        ("/srv/charts/gha-runner-scale-set-controller-0.14.2.tgz", "controller"),
        ("gha-runner-scale-set-experimental", None),
    ],
)
def test_releases_of_arc_are_recognised_by_their_chart(chart: str, kind: str | None) -> None:
    args = ReleaseArgs(name="r", namespace="n", chart=chart, version="0.14.2")
    plan = recorded(lambda: Release("release", args, opts=on_cluster()))
    found = release(plan, "r")
    assert arc_releases.scale_sets(plan) == ([found] if kind == "scale set" else [])
    assert arc_releases.controller(plan) == (found if kind == "controller" else None)


def test_a_chart_repository_is_told() -> None:
    repository = RepositoryOptsArgs(repo="https://charts.example")
    args = ReleaseArgs(name="r", namespace="n", chart="c", version="1.0.0", repository_opts=repository)
    plan = recorded(lambda: Release("release", args, opts=on_cluster()))
    assert release(plan, "r").repository == "https://charts.example"


def test_every_release_has_an_exact_version(plan: Plan) -> None:
    for each in plan.releases():
        assert each.version.count(".") == 2
        assert each.version[0].isdigit()


def test_nothing_goes_to_an_ambient_cluster(plan: Plan) -> None:
    providers = {resource.urn for resource in plan.resources if resource.type.startswith("pulumi:providers:")}
    for resource in plan.resources:
        assert resource.component or resource.urn in providers or resource.provider in providers


# -- secrets ----------------------------------------------------------------------------------------------------------

MIXED = {"plain": 1, "hidden": Hidden("hunter2"), "list": [Hidden({"a": Hidden(1)}), UNKNOWN], "none": None}


def test_what_is_shown_holds_no_secret() -> None:
    assert shown(MIXED) == {"plain": 1, "hidden": "<secret>", "list": ["<secret>", "<unknown>"], "none": None}


def test_what_is_revealed_holds_all() -> None:
    assert revealed(MIXED) == {"plain": 1, "hidden": "hunter2", "list": [{"a": 1}, UNKNOWN], "none": None}
    assert isinstance(revealed(MIXED)["list"][1], Unknown)


def test_stand_ins_are_handed_on_where_they_are_needed(plan: Plan) -> None:
    """The sandbox applies the very objects of the plan: their secrets have to be there, whatever they are."""
    for each in plan.objects():
        if each["kind"] == "Secret":
            assert all(
                isinstance(value, Hidden) and isinstance(revealed(value), str) for value in each["data"].values()
            )


def test_an_unknown_value_is_not_taken_for_a_secret() -> None:
    def build() -> None:
        opts = on_cluster()
        first = Namespace("first", opts=opts)
        pulumi.export("both", {"unknown": first.metadata.name, "secret": pulumi.Output.secret("x")})

    assert shown(recorded(build).exports) == {"both": {"unknown": "<unknown>", "secret": "<secret>"}}
