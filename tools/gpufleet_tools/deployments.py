"""Settings of Pulumi Deployments as files, `Pulumi.<stack>.deploy.yaml`, and the command that applies one.

The engine's command read such files until 3.250, and has only flags for each setting since (changelog/3.251.0.md of
pulumi/pulumi): the files keep their form, `apitype.DeploymentSettings`, and are turned into those flags.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

PLACEHOLDER = "REPLACE-"
"""How a value begins that only whoever owns the organisation knows."""


class _Part(BaseModel):
    # Keys as Pulumi writes them, in camelCase.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GitHub(_Part):
    """What pushes and pull requests do."""

    repository: str
    """OWNER/NAME of the repository."""
    previewPullRequests: bool = False  # noqa: N815
    """Preview pull requests."""
    deployCommits: bool = False  # noqa: N815
    """Apply what is pushed to the branch."""
    paths: list[str] = []
    """Only where one of these has changed."""


class Git(_Part):
    """Which revision of the program."""

    branch: str
    """Branch, as refs/heads/NAME."""
    repoDir: str | None = None  # noqa: N815
    """Folder of Pulumi.yaml; left out, the top one."""


class SourceContext(_Part):
    """Where the program comes from."""

    git: Git
    """A repository."""


class AwsIdentity(_Part):
    """The role that a deployment assumes by its own identity."""

    roleArn: str  # noqa: N815
    """ARN of the role."""
    sessionName: str  # noqa: N815
    """Name of its sessions."""
    duration: str | None = None
    """How long they last, as Go writes it: 1h0m0s."""


class Oidc(_Part):
    """Identities at clouds."""

    aws: AwsIdentity
    """At AWS."""


class Options(_Part):
    """How deployments run."""

    skipInstallDependencies: bool = False  # noqa: N815
    """Install nothing but what the commands before it do."""
    skipIntermediateDeployments: bool = False  # noqa: N815
    """Of several that wait, run the last."""


class OperationContext(_Part):
    """What a deployment does."""

    preRunCommands: list[str] = []  # noqa: N815
    """Commands before Pulumi's own."""
    environmentVariables: dict[str, str] = {}  # noqa: N815
    """Environment; nothing secret: that is kept in Pulumi Cloud alone."""
    oidc: Oidc | None = None
    """Identities at clouds."""
    options: Options = Options()
    """How it runs."""


class DeploymentSettings(_Part):
    """What the command of the engine can set (deployment_settings_edit_patch.go of pulumi/pulumi at v3.259.0)."""

    gitHub: GitHub  # noqa: N815
    """What pushes and pull requests do."""
    sourceContext: SourceContext  # noqa: N815
    """Where the program comes from."""
    operationContext: OperationContext = OperationContext()  # noqa: N815
    """What a deployment does."""
    agentPoolID: str | None = None  # noqa: N815
    """Id of the pool of agents that run it; left out, Pulumi's own."""


class DeploymentSettingsError(Exception):
    """A file is not there, or does not hold such settings. `str()` has one line for each fault."""


def read(root: pathlib.Path, stack: str) -> DeploymentSettings:
    """The settings of a stack's deployments. Raises DeploymentSettingsError, also for a placeholder that is left."""
    file = root / f"Pulumi.{stack}.deploy.yaml"
    try:
        content = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise DeploymentSettingsError(
            f"{file.name}: does not exist; Pulumi.dev.deploy.yaml shows what it holds"
        ) from None
    except yaml.YAMLError as error:
        raise DeploymentSettingsError(f"{file.name}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or [*content] != ["settings"]:
        raise DeploymentSettingsError(f"{file.name}: the one key 'settings' is needed, and everything below it")
    problems = [f"{file.name}: {path}: is still to be replaced: {value}" for path, value in _placeholders(content)]
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
    """Return the engine's command that sets all of it, and clears what the file does not have: the engine merges what
    it is given. `not_cleared` tells what cannot be cleared so."""
    github, git, does = settings.gitHub, settings.sourceContext.git, settings.operationContext
    # The files have no identity at another cloud.
    identity: list[tuple[str, str | bool | None]] = [("oidc-aws-clear", True)]
    if does.oidc:
        aws = does.oidc.aws
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
        *(("pre-run-command", command) for command in does.preRunCommands),
        *(("env", f"{name}={value}") for name, value in does.environmentVariables.items()),
        *identity,
        ("oidc-azure-clear", True),
        ("oidc-gcp-clear", True),
        ("skip-install-deps", does.options.skipInstallDependencies),
        ("skip-intermediate-deployments", does.options.skipIntermediateDeployments),
    ]
    words = [
        f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in flags
        if value is not None
    ]
    return ["pulumi", "deployment", "settings", "edit", "--stack", stack, *words]


def not_cleared(settings: DeploymentSettings) -> list[str]:
    """Return what to know before the command is run, one line each."""
    notes = ["pulumi deployment settings edit is experimental: another version of the engine may have other flags"]
    if not settings.operationContext.preRunCommands:
        notes.append("commands before the deployment that were set earlier stay: the engine cannot clear them")
    notes.append(
        "environment variables that the file no longer has stay: `pulumi deployment settings get` lists them, and"
        " --remove-env=NAME removes one"
    )
    return notes
