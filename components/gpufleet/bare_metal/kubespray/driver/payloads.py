"""Payloads of the driver's commands, which Pulumi sends as JSON on standard input. `reset` has none.

Sent unchanged to the machine that runs kubespray: standard library only.
"""

from __future__ import annotations

from typing import TypedDict

from gpufleet.bare_metal.kubespray.driver.install import Source
from gpufleet.bare_metal.kubespray.driver.steps import Desired, Node


class InstallPayload(TypedDict):
    """Payload of `install`."""

    files: dict[str, str]
    """Source text of the driver's modules, by path. The bootstrap script writes them before the driver runs."""
    source: Source
    """Origin of kubespray."""


class EnrollPayload(TypedDict):
    """Payload of `enroll` and `enrolled`, which do not read it: a change of it makes Pulumi look for the journal."""

    machine: str
    """Description of the machine that runs kubespray."""


class EntrustPayload(TypedDict):
    """Payload of `entrust`: every secret."""

    identity_file: str | None
    """Private SSH key."""
    variables: dict[str, str]
    """Secret variables of all hosts."""
    hosts: dict[str, dict[str, str]]
    """Secret variables of single hosts, by host."""


class SshFiles(TypedDict):
    """Text for the files of an SSH client."""

    ssh_config: str
    known_hosts: str


class SshConnections(TypedDict):
    """SSH configuration for all hosts, in parts: a host that is being removed keeps its part."""

    hosts: dict[str, SshFiles]
    """Text for each host."""
    rest: SshFiles
    """Text that follows the hosts'."""


class HandOverPayload(TypedDict):
    """Payload of `hand-over`."""

    to: str
    """Description of the machine that runs kubespray from now on."""


class AdoptPayload(TypedDict):
    """Payload of `adopt`, printed by `hand-over`."""

    identity: str
    """Identity of the cluster."""
    archive: list[str]
    """Files of the cluster's folder: lines of Base64 of a compressed JSON object, with texts by path."""


class ConvergePayload(TypedDict):
    """Payload of `converge`."""

    cluster: str | None
    """Identity of the cluster. A machine with another journal, or with none, refuses the run. None is not compared."""
    desired: Desired
    """Desired cluster."""
    secrets: str | None
    """Random revision ID of the secrets, printed by `entrust`; None for a cluster without secrets."""
    secret_hosts: list[str]
    """Hosts with secret variables of their own."""
    ssh: SshConnections | None
    """SSH configuration; None if variables define another connection for every host."""


class RemovePayload(Node):
    """Payload of `remove`: the desired node, so that the resource shows changes of it, and its name."""

    node: str
    """Name of the node; the only key that `remove` reads."""


class KubeconfigPayload(TypedDict):
    """Payload of `kubeconfig`."""

    cluster: str | None
    """Identity of the cluster, so that Pulumi fetches another kubeconfig for another cluster."""
    generation: str
    """Generation of the kubeconfig; another one makes kubespray issue a new certificate."""
    server: str | None
    """URL of the API server; None for the URL that kubespray writes."""
