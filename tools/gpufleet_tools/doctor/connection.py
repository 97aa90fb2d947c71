"""Connection to a stack's live cluster: the one that Pulumi's provider uses, or that of a given kubeconfig."""

from __future__ import annotations

import pathlib

from kubernetes import client

from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, ContextKubeconfig, SecretKubeconfig
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import NAMESPACE
from gpufleet_tools.doctor.finding import DoctorError
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.kubeconfig import InvalidKubeconfig, client_configuration
from gpufleet_tools.plan.stack import Stack


def target(stack: Stack, kubeconfig: pathlib.Path | None, context: str | None) -> Target:
    """Return the cluster to examine: the given one, or the stack's own. Raises DoctorError if the stack's kubeconfig is
    not available here."""
    if kubeconfig is not None:
        return Target(kubeconfig.expanduser().absolute(), context)
    own = _of_stack(stack.name, stack.settings)
    return Target(own.kubeconfig, context or own.context)


def _of_stack(name: str, settings: Settings) -> Target:
    """Return the cluster that Pulumi's provider of the stack connects to."""
    if isinstance(settings, EksSettings):
        eks = settings.cluster
        return Target(None, f"arn:{eks.partition}:eks:{eks.region}:{eks.account}:cluster/{eks.name}")
    assert isinstance(settings, BareMetalSettings)
    cluster = settings.cluster
    if isinstance(cluster.kubeconfig, ContextKubeconfig):
        path = cluster.kubeconfig.path
        return Target(pathlib.Path(path).expanduser() if path else None, cluster.kubeconfig.context)
    if isinstance(cluster.kubeconfig, SecretKubeconfig):
        raise DoctorError(
            f"the kubeconfig of {name} is a secret of the stack; write it to a file (pulumi config get --stack {name}"
            f" {NAMESPACE}:kubeconfig > FILE), and pass --kubeconfig FILE"
        )
    file = pathlib.Path(f"~/.kubespray/{cluster.name}/inventory/artifacts/admin.conf")
    if not file.expanduser().is_file():
        raise DoctorError(
            f"{file} does not exist here; kubespray writes it on the machine that runs kubespray: copy it from there,"
            " and pass --kubeconfig FILE"
        )
    return Target(file.expanduser(), None)


def configuration(stack: Stack, chosen: Target) -> client.Configuration:
    """Return the client's configuration. Raises DoctorError if the kubeconfig or its context cannot be used."""
    try:
        return client_configuration(chosen.kubeconfig, chosen.context)
    except InvalidKubeconfig as error:
        raise DoctorError(f"{error}; {_advice(stack.settings)}") from error


def _advice(settings: Settings) -> str:
    """Return the command that writes the context of a cluster on EKS; in general, the options."""
    if isinstance(settings, EksSettings):
        cluster = settings.cluster
        return (
            f"run aws eks update-kubeconfig --region {cluster.region} --name {cluster.name}, or pass --kubeconfig FILE"
        )
    return "pass --kubeconfig FILE, and --context NAME for another than its current context"
