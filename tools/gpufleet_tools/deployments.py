"""Settings of Pulumi Deployments as files, `Pulumi.<stack>.deploy.yaml`, and the command that applies one.

Up to 3.250 the engine's command read such files; since then it has a flag for each setting (changelog/3.251.0.md of
pulumi/pulumi). The files keep the form of `apitype.DeploymentSettings`; this module converts them to those flags.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

PLACEHOLDER = "REPLACE-"
"""Prefix of a value that the owner of the organisation has to fill in."""


class _Part(BaseModel):
    # Keys as Pulumi writes them, in camelCase.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GitHub(_Part):
    """Deployments that pushes and pull requests start."""

    repository: str
    """OWNER/NAME of the repository."""
    previewPullRequests: bool = False  # noqa: N815
    """Preview pull requests."""
    deployCommits: bool = False  # noqa: N815
    """Run `pulumi up` on every push to the branch."""
    paths: list[str] = []
    """Filter: deploy only if one of these paths has changed."""


class Git(_Part):
    """Revision and folder of the program."""

    branch: str
    """Branch, as refs/heads/NAME."""
    repoDir: str | None = None  # noqa: N815
    """Folder of Pulumi.yaml; default: the repository's root."""


class SourceContext(_Part):
    """Source of the program."""

    git: Git
    """Git repository."""


class AwsIdentity(_Part):
    """The role that a deployment assumes with its OIDC token."""

    roleArn: str  # noqa: N815
    """ARN of the role."""
    sessionName: str  # noqa: N815
    """Name of its sessions."""
    duration: str | None = None
    """Duration of a session in Go's notation: 1h0m0s."""


class Oidc(_Part):
    """Identities that a deployment gets from cloud providers."""

    aws: AwsIdentity
    """Identity at AWS."""


class Options(_Part):
    """Options of a deployment's run."""

    skipInstallDependencies: bool = False  # noqa: N815
    """Skip `pulumi install`; the pre-run commands install what is needed."""
    skipIntermediateDeployments: bool = False  # noqa: N815
    """Run only the last of several queued deployments."""


class OperationContext(_Part):
    """Environment and commands of a deployment."""

    preRunCommands: list[str] = []  # noqa: N815
    """Commands that run before Pulumi."""
    environmentVariables: dict[str, str] = {}  # noqa: N815
    """Environment variables; no secrets, which are stored in Pulumi Cloud only."""
    oidc: Oidc | None = None
    """Identities that the deployment gets from cloud providers."""
    options: Options = Options()
    """Options of the run."""


class DeploymentSettings(_Part):
    """Settings that the engine's command can set (deployment_settings_edit_patch.go of pulumi/pulumi at v3.259.0)."""

    gitHub: GitHub  # noqa: N815
    """Deployments that pushes and pull requests start."""
    sourceContext: SourceContext  # noqa: N815
    """Source of the program."""
    operationContext: OperationContext = OperationContext()  # noqa: N815
    """Environment and commands of a deployment."""
    agentPoolID: str | None = None  # noqa: N815
    """ID of the agent pool that runs deployments; default: Pulumi's own."""


class DeploymentSettingsError(Exception):
    """A settings file is missing or invalid. `str()` has one line for each fault."""


def read(root: pathlib.Path, stack: str) -> DeploymentSettings:
    """Return the deployment settings of a stack. Raises DeploymentSettingsError, also for a remaining placeholder."""
    file = root / f"Pulumi.{stack}.deploy.yaml"
    try:
        content = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise DeploymentSettingsError(f"{file.name}: does not exist; Pulumi.dev.deploy.yaml is an example") from None
    except yaml.YAMLError as error:
        raise DeploymentSettingsError(f"{file.name}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or [*content] != ["settings"]:
        raise DeploymentSettingsError(f"{file.name}: must have exactly one key, 'settings', with everything below it")
    problems = [f"{file.name}: {path}: replace the placeholder {value}" for path, value in _placeholders(content)]
    try:
        settings = DeploymentSettings.model_validate(content["settings"])
    except ValidationError as error:
        problems += [f"{file.name}: settings.{_path(each['loc'])}: {each['msg']}" for each in error.errors()]
    if problems:
        raise DeploymentSettingsError("\n".join(problems))
    return settings


def _path(parts: tuple[str | int, ...]) -> str:
    return ".".join(map(str, parts))


def _placeholders(value: Any, *path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _placeholders(item, *path, str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _placeholders(item, *path, str(index))
    elif isinstance(value, str) and PLACEHOLDER in value:
        yield _path(path), value


def edit(stack: str, settings: DeploymentSettings) -> list[str]:
    """Return the engine's command that applies the settings. The engine merges, so the command also clears every
    setting that the file omits; `not_cleared` lists the exceptions."""
    github, git, operation = settings.gitHub, settings.sourceContext.git, settings.operationContext
    # The files support no identity at another cloud.
    identity: list[tuple[str, str | bool | None]] = [("oidc-aws-clear", True)]
    if operation.oidc:
        aws = operation.oidc.aws
        identity = [
            ("oidc-aws-role-arn", aws.roleArn),
            ("oidc-aws-session-name", aws.sessionName),
            ("oidc-aws-duration", aws.duration),
        ]
    flags: list[tuple[str, str | bool | None]] = [
        ("github-repo", github.repository),
        ("preview-prs", github.previewPullRequests),
        ("push-to-deploy", github.deployCommits),
        *(("path-filter", path) for path in github.paths or [""]),
        ("branch", git.branch),
        ("folder", git.repoDir or ""),
        ("runner-pool", settings.agentPoolID or ""),
        *(("pre-run-command", command) for command in operation.preRunCommands),
        *(("env", f"{name}={value}") for name, value in operation.environmentVariables.items()),
        *identity,
        ("oidc-azure-clear", True),
        ("oidc-gcp-clear", True),
        ("skip-install-deps", operation.options.skipInstallDependencies),
        ("skip-intermediate-deployments", operation.options.skipIntermediateDeployments),
    ]
    words = [
        f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in flags
        if value is not None
    ]
    return ["pulumi", "deployment", "settings", "edit", "--stack", stack, *words]


def not_cleared(settings: DeploymentSettings) -> list[str]:
    """Return warnings about the command, one line each."""
    notes = ["pulumi deployment settings edit is experimental: another version of the engine may have other flags"]
    if not settings.operationContext.preRunCommands:
        notes.append("pre-run commands that were set earlier remain: the engine cannot clear them")
    notes.append(
        "environment variables that the file no longer has remain: `pulumi deployment settings get` lists them, and"
        " --remove-env=NAME removes one"
    )
    return notes
