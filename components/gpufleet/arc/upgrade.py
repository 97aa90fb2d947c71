"""Upgrade of ARC that keeps scale sets and their jobs.

A controller deletes scale sets of another minor version as soon as it starts, and Helm never upgrades CRDs. During an
upgrade, the API server therefore rejects these deletions, and the CRDs are applied before the new controller starts.
It ignores a scale set until Helm has upgraded the set's chart (`Reconcile` in autoscalingrunnerset_controller.go of
ARC at 0.14.2). Listeners and runners work meanwhile.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinitionPatch

from gpufleet.arc.versions import INSTALLED_VERSION, numbers
from gpufleet.chart import Chart

GROUP = "actions.github.com"
"""API group of ARC's custom resources."""

KINDS = ("autoscalinglisteners", "autoscalingrunnersets", "ephemeralrunners", "ephemeralrunnersets")
"""ARC's custom resources (crds/ of the controller chart at 0.12 to 0.14.2)."""


def before_upgrade(
    name: str, chart: Chart, installed: str, namespace: str, account: str, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Return the resources that must exist before the controller's chart is upgraded from the installed version.

    `account` is the controller's service account in `namespace`.
    """
    guard = deletion_guard(name, installed, namespace, account, opts)
    # An older controller works with newer CRDs: they have all its fields. Older CRDs would drop fields of live objects.
    if numbers(chart.version) < numbers(installed):
        return guard
    return [*guard, *updated_definitions(name, chart, guard, opts)]


def deletion_guard(
    name: str, installed: str, namespace: str, account: str, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Create an admission policy by which the controller cannot delete scale sets. It deletes them only if their minor
    version differs. Helm deletes scale sets as another user."""
    deletions = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": ["autoscalingrunnersets"],
    }
    rejected = {
        "expression": f"request.userInfo.username != 'system:serviceaccount:{namespace}:{account}'",
        "message": "ARC is being upgraded: its controller cannot delete scale sets",
    }
    metadata: Any = {"name": f"{account}-upgrade", "annotations": {INSTALLED_VERSION: installed}}
    rules: Any = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [deletions]},
        "validations": [rejected],
    }
    policy = ValidatingAdmissionPolicy(f"{name}-upgrade", metadata=metadata, spec=rules, opts=opts)
    use: Any = {"policyName": metadata["name"], "validationActions": ["Deny"]}
    binding = ValidatingAdmissionPolicyBinding(
        f"{name}-upgrade",
        metadata=metadata,
        spec=use,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[policy])),
    )
    return [policy, binding]


def updated_definitions(
    name: str, chart: Chart, guard: list[pulumi.Resource], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Apply ARC's CRDs of the chart's version.

    These are patches that stay when the stack no longer has them. Deleting a CRD would delete all scale sets.
    """
    assert opts.parent is not None
    definitions = chart.definitions(opts.parent)
    own = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=guard, retain_on_delete=True))
    return [
        CustomResourceDefinitionPatch(
            f"{name}-{kind}",
            # Helm created the object, so its fields have another owner.
            metadata={"name": f"{kind}.{GROUP}", "annotations": {"pulumi.com/patchForce": "true"}},
            spec=_spec(definitions, f"{kind}.{GROUP}"),
            opts=own,
        )
        for kind in KINDS
    ]


def _spec(definitions: pulumi.Output[dict[str, Any]], name: str) -> pulumi.Output[Any]:
    return definitions.apply(lambda found: found[name]["spec"])
