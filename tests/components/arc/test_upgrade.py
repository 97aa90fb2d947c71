"""Resources of ARC's controller while it is upgraded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gpufleet.arc import ArcController, ArcControllerArgs
from gpufleet.arc.upgrade import GROUP, KINDS
from gpufleet.arc.versions import minor_steps, numbers
from gpufleet.chart import Chart
from gpufleet_tools.plan.plan import UNKNOWN, Plan
from tests.recording import on_cluster, recorded, release, the

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def controller(**args: Any) -> Plan:
    return recorded(lambda: ArcController("arc", ArcControllerArgs(**args), on_cluster()))


def of_kind(plan: Plan, kind: str) -> list[Any]:
    return [each for each in plan.owned() if each.type.endswith(f":{kind}")]


def test_outside_upgrades_there_is_nothing_of_them() -> None:
    plan = controller()
    assert not of_kind(plan, POLICY) + of_kind(plan, BINDING) + of_kind(plan, "CustomResourceDefinitionPatch")


def test_the_controller_cannot_delete_scale_sets() -> None:
    plan = controller(version="0.14.2", upgrade_from="0.13.1", namespace="runners", release="gha")
    policy, binding = the(plan, POLICY), the(plan, BINDING)
    (rules,) = policy.inputs["spec"]["matchConstraints"]["resourceRules"]
    assert (rules["operations"], rules["resources"]) == (["DELETE"], ["autoscalingrunnersets"])
    (validation,) = policy.inputs["spec"]["validations"]
    account = release(plan, "gha").values.get("serviceAccount", {}).get("name", "gha-gha-rs-controller")
    assert validation["expression"] == f"request.userInfo.username != 'system:serviceaccount:runners:{account}'"
    assert binding.inputs["spec"] == {"policyName": policy.inputs["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy.inputs["metadata"]["annotations"] == {"gpufleet.dev/upgrade-from": "0.13.1"}


def test_the_controller_comes_after_policy_and_definitions() -> None:
    plan = controller(version="0.14.2", upgrade_from="0.13.1")
    patches = of_kind(plan, "CustomResourceDefinitionPatch")
    assert len(patches) == 4
    guard = {the(plan, POLICY).urn, the(plan, BINDING).urn}
    assert {each.urn for each in patches} | guard <= {*the(plan, "Release").depends_on}
    for each in patches:
        assert guard <= {*each.depends_on}
        # Deleting a definition deletes every scale set.
        assert each.options["retainOnDelete"] is True
        assert each.inputs["spec"] is UNKNOWN


def test_definitions_are_unknown_while_the_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine answers with an empty map for a provider whose configuration is unknown."""
    names = [f"{kind}.{GROUP}" for kind in KINDS]
    crds = [{"kind": "CustomResourceDefinition", "metadata": {"name": name}, "spec": {"a": name}} for name in names]
    for answer, specs in ({}, [UNKNOWN] * 4), ({"result": crds}, [each["spec"] for each in crds]):
        monkeypatch.setattr(pulumi.runtime, "invoke_output", lambda *_, of=answer: pulumi.Output.from_input(of))
        plan = controller(version="0.14.2", upgrade_from="0.13.1")
        patches = of_kind(plan, "CustomResourceDefinitionPatch")
        assert sorted((each.inputs["spec"] for each in patches), key=str) == specs


def test_an_older_controller_keeps_the_newer_definitions() -> None:
    plan = controller(version="0.13.1", upgrade_from="0.14.2")
    assert of_kind(plan, POLICY)
    assert not of_kind(plan, "CustomResourceDefinitionPatch")


def test_definitions_come_from_the_source_of_the_chart(tmp_path: Path) -> None:
    asked = [json.loads(options(mirror)) for mirror in (None, "https://charts.example.com/", str(tmp_path))]
    assert asked == [
        {"chart": "oci://ghcr.io/x/arc", "version": "1.2.3", "release_name": "arc"},
        {
            "chart": "arc",
            "version": "1.2.3",
            "fetch_opts": {"repo": "https://charts.example.com"},
            "release_name": "arc",
        },
        {"path": f"{tmp_path}/arc-1.2.3.tgz", "release_name": "arc"},
    ]


def options(mirror: str | None) -> str:
    return Chart(name="arc", registry="oci://ghcr.io/x", version="1.2.3", mirror=mirror).template_options()


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [
        ("0.14.1", "0.14.2", 0),
        ("0.13.1", "0.14.2-rc1", 1),
        ("0.14.2", "0.12.0", 2),
        ("0.14.2", "1.14.2", 2),
    ],
)
def test_minor_versions_between(one: str, other: str, steps: int) -> None:
    assert minor_steps(one, other) == minor_steps(other, one) == steps


def test_numbers_of_any_version() -> None:
    assert [numbers(each) for each in ("0.9.10", "1.2", "0.14.2+a.1", "latest")] == [
        (0, 9, 10),
        (1, 2, 0),
        (0, 14, 2),
        (0, 0, 0),
    ]
