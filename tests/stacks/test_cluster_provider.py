"""The provider of a cluster that somebody else made: what of it is registered, and so kept in the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.plan import stack
from tests.conftest import ROOT, MakeProject

LAB = (ROOT / "tests/settings/smallest.ok.yaml").read_text()
CONTEXT = "{kind: context, context: lab}"


def provider(folder: Path) -> dict[str, Any]:
    """Its inputs, and whether a Secret on the cluster changes in place."""
    (found,) = (each for each in stack.read(folder, "lab").plan().resources if each.kind == "provider")
    return dict(found.inputs)


def test_a_context_is_registered_without_the_kubeconfig_of_a_shell(
    project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose shell runs Pulumi is no change of the stack."""
    monkeypatch.setenv("KUBECONFIG", "/home/somebody/.kube/config")
    expected = {"clusterIdentifier": "lab", "context": "lab", "enableSecretMutable": "true"}
    assert provider(project({"lab": LAB})) == expected


def test_a_path_that_the_settings_name_is_registered(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/somebody/.kube/config")
    assert CONTEXT in LAB
    named = LAB.replace(CONTEXT, "{kind: context, context: lab, path: /etc/lab.kubeconfig}")
    assert provider(project({"lab": named}))["kubeconfig"] == "/etc/lab.kubeconfig"
