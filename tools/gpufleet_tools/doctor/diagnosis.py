"""Diagnosis of a stack's live cluster: a snapshot, and all findings about it."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from gpufleet_tools.api_server import ApiServer
from gpufleet_tools.doctor import connection
from gpufleet_tools.doctor.declared import Declared, declared
from gpufleet_tools.doctor.finding import DoctorError, Finding
from gpufleet_tools.doctor.judgement import controller, leftovers, listeners, nodes, runners, scale_sets
from gpufleet_tools.doctor.reading import Scope, read
from gpufleet_tools.doctor.view import View, identity
from gpufleet_tools.plan.stack import Stack

_JUDGES = (controller, scale_sets, listeners, runners, nodes, leftovers)

_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Diagnosis:
    """Result of an examination."""

    server: str
    """Address of the API server."""
    view: View
    """Snapshot beside the declaration."""
    findings: tuple[Finding, ...]
    """Findings, errors first."""


def diagnose(stack: Stack, kubeconfig: pathlib.Path | None = None, context: str | None = None) -> Diagnosis:
    """Examine the stack's cluster. Every request is a GET. Raises DoctorError if the cluster cannot be examined."""
    wanted = declared(stack, stack.plan())
    if wanted is None:
        raise DoctorError(f"{stack.name} does not install ARC, so there is nothing to examine")
    target = connection.target(stack, kubeconfig, context)
    with ApiServer(connection.configuration(stack, target)) as api:
        snapshot = read(api, _scope(wanted), lambda found: _restless(View(wanted, found, target)))
        view = View(wanted, snapshot, target)
        return Diagnosis(str(api.settings.host), view, tuple(findings(view)))


def findings(view: View) -> list[Finding]:
    """Return all findings about a snapshot, errors first."""
    found = [finding for judge in _JUDGES for finding in judge.findings(view)]
    return sorted(found, key=lambda finding: _SEVERITIES.index(finding.severity))


def _scope(wanted: Declared) -> Scope:
    return Scope(
        controller=wanted.controller.namespace,
        runners=wanted.namespaces,
        devices=wanted.device_namespaces,
        secrets={(each.namespace, each.secret) for each in wanted.scale_sets},
    )


def _restless(view: View) -> list[tuple[str, str]]:
    """Return the pods of listeners that do not stay up."""
    return [identity(each) for each in view.snapshot["listeners"] if view.restless(each)]
