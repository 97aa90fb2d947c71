"""A project that uses the cluster: its namespace and the credentials its runners register with."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.core.v1 import Namespace, Secret


@dataclass(frozen=True, kw_only=True)
class ExistingSecret:
    """A secret that the project's owners keep in their namespace; it is named here, never made, changed or deleted."""

    name: str
    """Name of the secret."""


@dataclass(frozen=True, kw_only=True)
class GithubApp:
    """A GitHub App installed on the organisation or repository."""

    secret_name: str
    """Name of the Kubernetes secret that is made of it."""
    app_id: str
    """The App's id or client id. Text: as a number it reaches Helm as `1.234567e+06`."""
    installation_id: str
    """Id of the installation. Text, without a line end: ARC parses it as an integer."""
    private_key: pulumi.Input[str]
    """The App's private key in PEM form. A secret."""


@dataclass(frozen=True, kw_only=True)
class GithubToken:
    """A personal access token."""

    secret_name: str
    """Name of the Kubernetes secret that is made of it."""
    token: pulumi.Input[str]
    """The token. A secret."""


Credentials = ExistingSecret | GithubApp | GithubToken


@dataclass(frozen=True, kw_only=True)
class ProjectReference:
    """A project, as its scale sets have to know it. Take `RunnerProject.reference`, or describe one that is there."""

    config_url: pulumi.Input[str]
    """GitHub URL of the enterprise, organisation or repository whose jobs its runners take."""
    namespace: pulumi.Input[str]
    """Namespace of its runners."""
    credentials_secret: pulumi.Input[str]
    """Name of the secret in that namespace that its runners register with."""
    runner_group: str | None = None
    """GitHub runner group; None means GitHub's default group."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before a scale set, and has to stay until it is gone: without its credentials, a scale set
    cannot be unregistered and is never removed."""


@dataclass(frozen=True, kw_only=True)
class RunnerProjectArgs:
    """What a project needs to know."""

    config_url: str
    """GitHub URL of the enterprise, organisation or repository whose jobs its runners take."""
    namespace: str
    """Namespace of its runners."""
    credentials: Credentials
    """What its runners register with."""
    runner_group: str | None = None
    """GitHub runner group; None means GitHub's default group."""


class RunnerProject(pulumi.ComponentResource):
    """Namespace and credentials secret of one project.

    With an existing secret the namespace exists as well, since the secret lies in it: it is only looked up, so that
    `destroy` cannot take the owners' secret with it.
    """

    ready: list[pulumi.Resource]
    """Namespace and credentials: depend on them for "runners can register"."""
    reference: ProjectReference
    """What its scale sets are told."""

    def __init__(self, name: str, args: RunnerProjectArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-runners:index:RunnerProject", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        if isinstance(args.credentials, ExistingSecret):
            secret_name = args.credentials.name
            self.ready = [Namespace.get(f"{name}-namespace", args.namespace, opts=child)]
        else:
            secret_name = args.credentials.secret_name
            namespace = Namespace(f"{name}-namespace", metadata={"name": args.namespace}, opts=child)
            secret = Secret(
                f"{name}-credentials",
                metadata={"name": secret_name, "namespace": args.namespace},
                data=secret_data(args.credentials),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
            )
            self.ready = [namespace, secret]
        self.reference = ProjectReference(
            config_url=args.config_url,
            namespace=args.namespace,
            credentials_secret=secret_name,
            runner_group=args.runner_group,
            needs=self.ready,
        )
        self.register_outputs({"namespace": args.namespace})


def secret_data(credentials: GithubApp | GithubToken) -> dict[str, pulumi.Input[str]]:
    """The secret's data under the keys that ARC reads, base64-encoded. `data` and not `stringData`: from that, a key
    that is taken away would stay on the server."""
    if isinstance(credentials, GithubToken):
        return {"github_token": _encoded(credentials.token)}
    return {
        "github_app_id": _encoded(credentials.app_id),
        "github_app_installation_id": _encoded(credentials.installation_id),
        "github_app_private_key": _encoded(credentials.private_key),
    }


def _encoded(value: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.secret(value).apply(lambda text: base64.b64encode(text.encode()).decode())
