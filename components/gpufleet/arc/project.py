"""A project that uses the cluster: its namespace, and the credentials of its runners."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import Namespace, Secret


@dataclass(frozen=True, kw_only=True)
class ExistingSecret:
    """A secret that the project's owners manage in their namespace. The component refers to it, and never changes
    it."""

    name: str
    """Name of the secret."""
    revision: str | None = None
    """Any text that changes together with the secret's contents. A change restarts the listeners, which read
    credentials only when they start."""


@dataclass(frozen=True, kw_only=True)
class GithubApp:
    """A GitHub App installed on the organisation or repository."""

    secret_name: str
    """Name of the Kubernetes secret that the component creates."""
    app_id: str
    """App ID or client ID. Text, because a number reaches Helm as `1.234567e+06`."""
    installation_id: str
    """Installation ID. Text without a line break, because ARC parses it as an integer."""
    private_key: pulumi.Input[str]
    """Private key of the App in PEM format; becomes a secret."""


@dataclass(frozen=True, kw_only=True)
class GithubToken:
    """A personal access token."""

    secret_name: str
    """Name of the Kubernetes secret that the component creates."""
    token: pulumi.Input[str]
    """The token; becomes a secret."""


Credentials = ExistingSecret | GithubApp | GithubToken


@dataclass(frozen=True, kw_only=True)
class ProjectReference:
    """Connection details of a project, passed to its scale sets. Use `RunnerProject.reference`, or describe an existing
    project."""

    config_url: pulumi.Input[str]
    """GitHub URL of the enterprise, organisation or repository whose jobs the runners take."""
    namespace: pulumi.Input[str]
    """Namespace of the runners."""
    credentials_secret: pulumi.Input[str]
    """Name of the secret in that namespace with the runners' credentials."""
    runner_group: str | None = None
    """GitHub runner group; None for GitHub's default group."""
    proxy: Mapping[str, Any] | None = None
    """Chart value `proxy` of the scale sets; None for no proxy."""
    server_tls: Mapping[str, Any] | None = None
    """Chart value `githubServerTLS` of the scale sets; None for the public certificate authorities."""
    credentials_revision: pulumi.Input[str] | None = None
    """Text that changes with the contents of the secret; a change restarts the listeners. None if nothing shows such a
    change."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before a scale set, and outlive it. Without its credentials, a scale set cannot be
    unregistered and is never removed."""


@dataclass(frozen=True, kw_only=True)
class RunnerProjectArgs:
    """Arguments of `RunnerProject`."""

    config_url: str
    """GitHub URL of the enterprise, organisation or repository whose jobs the runners take."""
    namespace: str
    """Namespace of the runners."""
    credentials: Credentials
    """Credentials with which the runners register at GitHub."""
    runner_group: str | None = None
    """GitHub runner group; None for GitHub's default group."""
    proxy: Mapping[str, Any] | None = None
    """Chart value `proxy` of the scale sets; None for no proxy."""
    server_tls: Mapping[str, Any] | None = None
    """Chart value `githubServerTLS` of the scale sets: the certificate authority of a GitHub Enterprise Server. None
    for the public ones."""


class RunnerProject(pulumi.ComponentResource):
    """Namespace and credentials secret of one project.

    An existing secret implies an existing namespace. The component only looks that up, so that `destroy` does not
    delete the owners' secret with it.
    """

    ready: pulumi.Resource
    """The namespace and credentials; depend on it to wait until runners can register."""
    reference: ProjectReference
    """Connection details for the project's scale sets."""

    def __init__(self, name: str, args: RunnerProjectArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-runners:index:RunnerProject", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        revision: pulumi.Input[str] | None
        if isinstance(args.credentials, ExistingSecret):
            secret_name, revision = args.credentials.name, args.credentials.revision
            needs: list[pulumi.Resource] = [Namespace.get(f"{name}-namespace", args.namespace, opts=child)]
        else:
            secret_name = args.credentials.secret_name
            namespace = Namespace(f"{name}-namespace", metadata={"name": args.namespace}, opts=child)
            data = secret_data(args.credentials)
            revision = credentials_revision(f"{args.namespace}/{secret_name}", data)
            secret = Secret(
                f"{name}-credentials",
                metadata={"name": secret_name, "namespace": args.namespace},
                data=data,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
            )
            needs = [namespace, secret]
        self.reference = ProjectReference(
            config_url=args.config_url,
            namespace=args.namespace,
            credentials_secret=secret_name,
            runner_group=args.runner_group,
            proxy=args.proxy,
            server_tls=args.server_tls,
            credentials_revision=revision,
            needs=needs,
        )
        self.ready = self
        self.register_outputs({"namespace": args.namespace})


def secret_data(credentials: GithubApp | GithubToken) -> dict[str, pulumi.Input[str]]:
    """Return the secret's data in base64, with the keys that ARC reads. With `stringData`, keys removed later would
    stay on the server, so `data` is used."""
    if isinstance(credentials, GithubToken):
        return {"github_token": _encoded(credentials.token)}
    return {
        "github_app_id": _encoded(credentials.app_id),
        "github_app_installation_id": _encoded(credentials.installation_id),
        "github_app_private_key": _encoded(credentials.private_key),
    }


def _encoded(value: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.secret(value).apply(lambda text: base64.b64encode(text.encode()).decode())


def credentials_revision(secret: str, data: Mapping[str, pulumi.Input[str]]) -> pulumi.Output[str]:
    """Return a digest of a secret's data that is safe to show, in the clear even if the data is secret.

    `secret` is the Secret's namespace and name; two Secrets with the same data have different digests. A digest could
    confirm a guess of the data, but guessing is infeasible: an App's private key has at least 112 bits of security, and
    GitHub's tokens have 30 random letters and digits, 178 bits (GitHub's blog of 2021-04-05, "Behind GitHub's new
    authentication token formats").
    """

    def digest(values: Mapping[str, str]) -> str:
        content = json.dumps(dict(values), sort_keys=True).encode()
        return hmac.new(content, secret.encode(), hashlib.sha256).hexdigest()[:16]

    # Otherwise Pulumi would hide the digest, and previews would not show why listeners restart.
    return pulumi.Output.unsecret(pulumi.Output.all(**data).apply(digest))
