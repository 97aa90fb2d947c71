"""A component by itself, recorded: what most tests of components and of the recorder start with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
from pulumi_kubernetes import Provider

from gpufleet_tools.plan.plan import Plan, Release, Resource
from gpufleet_tools.plan.recorder import record_program

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
"""A host's public key that no host has: GitHub's own, which everybody has."""

PROJECT, STACK = "gpu-runners", "test"


def recorded(build: Callable[[], object], *, unknown_outputs: bool = True) -> Plan:
    """The plan of a program that is a function."""

    def program() -> None:
        build()

    return record_program(program, project=PROJECT, stack=STACK, unknown_outputs=unknown_outputs)


def on_cluster(**options: Any) -> pulumi.ResourceOptions:
    """Options with the explicit provider that every resource needs. To be called once, in the program."""
    return pulumi.ResourceOptions(providers=[Provider("cluster", context="cluster")], **options)


def on_aws(**options: Any) -> pulumi.ResourceOptions:
    """Options with the providers of a cluster and of the account that it is in. To be called once, in the program."""
    # Imported here: most tests have no use for it.
    from pulumi_aws import Provider as Account

    providers = [Provider("cluster", context="cluster"), Account("account", region="eu-west-1")]
    return pulumi.ResourceOptions(providers=providers, **options)


def on_hosts(**options: Any) -> pulumi.ResourceOptions:
    """Options with the providers of a cluster and of commands. To be called once, in the program."""
    from pulumi_command import Provider as Commands

    providers = [Provider("cluster", context="cluster"), Commands("hosts")]
    return pulumi.ResourceOptions(providers=providers, **options)


def the(plan: Plan, kind: str, name: str | None = None) -> Resource:
    """The only resource of that kind (the last part of its type), and of that name where there are several."""
    found = [
        resource
        for resource in plan.resources
        if resource.type.split(":")[-1] == kind and name in (None, resource.name)
    ]
    assert len(found) == 1, f"{len(found)} resources are a {kind} {name or ''}"
    return found[0]


def release(plan: Plan, name: str) -> Release:
    """The Helm release of that name."""
    return {release.name: release for release in plan.releases()}[name]


def stays_for(plan: Plan, resource: Resource) -> set[str]:
    """URNs of what Pulumi's engine removes only once the resource is gone: what it depends on, its parent and its
    provider, what those depend on, and so on (pkg/resource/graph/dependency_graph.go in pulumi/pulumi)."""
    by_urn = {each.urn: each for each in plan.resources}
    found: set[str] = set()
    left = [resource.urn]
    while left:
        each = by_urn[left.pop()]
        needs = {*each.depends_on, *filter(None, (each.parent, each.provider))}
        left += needs - found
        found |= needs
    return found
