"""Subcommands and options of the command `gpufleet`."""

from __future__ import annotations

import argparse
import datetime
import pathlib
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_ENGINE = {"up": "up", "down": "destroy"}


def day(text: str) -> datetime.date:
    """Return the date. The function's name appears in argparse's error message."""
    return datetime.date.fromisoformat(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands and options."""
    top = argparse.ArgumentParser(
        prog="gpufleet",
        description="Preview GPU CI clusters offline, and run them on one machine.",
        epilog="exit codes: 0 success, 1 findings, 2 invalid settings or arguments, 3 internal error",
    )
    top.add_argument("-C", dest="root", metavar="DIR", type=pathlib.Path, default=pathlib.Path(), help="project folder")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _check(commands)
    _preview(commands)
    _labels(commands)
    _diff(commands)
    _capacity(commands)
    _deployments(commands)
    _lint_workflows(commands)
    _import(commands)
    _hosts(commands)
    _doctor(commands)
    _maintenance(commands)
    _pins(commands)
    _upgrade(commands)
    _schema(commands)
    _sandbox(commands)
    return top


def _add_day(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--on",
        metavar="DATE",
        type=day,
        default=datetime.date.today(),
        help="date against which expiry dates are checked (2027-01-31); default: today",
    )


def _check(commands: Commands) -> None:
    check = commands.add_parser("check", help="validate stack files and print findings")
    check.add_argument("stack", nargs="*", help="stack; default: all stacks of the project")
    check.add_argument(
        "--policy",
        action="store_true",
        help="also run the program and check its resources against the policy; takes a second more",
    )
    _add_day(check)


def _preview(commands: Commands) -> None:
    preview = commands.add_parser(
        "preview", help="show what `pulumi up` would create, without engine, cluster or network"
    )
    preview.add_argument("stack")
    preview.add_argument("--format", choices=("tree", "yaml", "json"), default="tree")
    preview.add_argument(
        "--dependencies", action="store_true", help="show the dependencies of each resource in the tree"
    )
    preview.add_argument(
        "--out",
        metavar="DIR",
        type=pathlib.Path,
        help="write manifests, chart values, kubespray's inventory and plan.json",
    )
    _add_day(preview)


def _labels(commands: Commands) -> None:
    labels = commands.add_parser("labels", help="print the catalogue of labels for authors of workflows")
    labels.add_argument("stack", nargs="*", help="stack; default: all stacks of the project")
    labels.add_argument(
        "--format",
        choices=("text", "markdown", "html", "json", "actionlint"),
        help="html: a page to publish; default: text in a terminal, markdown in a pipe or a file",
    )


def _diff(commands: Commands) -> None:
    diff = commands.add_parser("diff", help="show what changes between two revisions, for users and in each stack")
    diff.add_argument(
        "range",
        metavar="BASE..HEAD",
        help="two git revisions; BASE...HEAD: since HEAD branched off BASE; BASE alone: compare with the working tree",
    )
    diff.add_argument("stack", nargs="*", help="stack; default: all stacks of the project")
    diff.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    diff.add_argument("--out", metavar="FILE", type=pathlib.Path, help="write the report to FILE")
    diff.add_argument("--allow", metavar="NAME", action="append", default=[], help="accept a refused change")
    _add_day(diff)


def _capacity(commands: Commands) -> None:
    capacity = commands.add_parser(
        "capacity", help="show the capacity of node pools: guaranteed and burst jobs of each label"
    )
    capacity.add_argument("stack", nargs="*", help="stack; default: all stacks of the project")
    capacity.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: an object for one named stack, else a list"
    )


def _deployments(commands: Commands) -> None:
    deployments = commands.add_parser(
        "deployments", help="print the command that applies a stack's deployment settings"
    )
    deployments.add_argument("stack", help="stack, whose file is Pulumi.<stack>.deploy.yaml")
    deployments.add_argument("--organization", metavar="NAME", help="Pulumi Cloud organisation of the stack")


def _lint_workflows(commands: Commands) -> None:
    lint = commands.add_parser("lint-workflows", help="find labels in workflows that no runner serves")
    lint.add_argument("path", nargs="+", type=pathlib.Path, help="workflow file, or folder with .github/workflows")
    lint.add_argument("--format", choices=("text", "json", "sarif"), default="text")
    lint.add_argument(
        "--repository", metavar="OWNER/NAME", help="repository of the workflows; only labels available to it count"
    )
    lint.add_argument(
        "--also", action="append", default=[], metavar="LABEL", help="label or pattern (*) that other runners serve"
    )
    lint.add_argument("--labels-only", action="store_true", help="check labels only; do not run actionlint")


def _import(commands: Commands) -> None:
    imports = commands.add_parser("import", help="write stack file entries for existing scale sets")
    imports.add_argument(
        "file", nargs="+", metavar="[LABEL=]FILE", help="values of ARC's chart, `helm get values`, or manifests"
    )
    imports.add_argument("--namespace", help="namespace of the runners, if the files do not specify it")
    imports.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="value passed to `helm --set` beside the files"
    )
    imports.add_argument(
        "--substitute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a variable ${NAME} that Flux or Terraform fills in",
    )
    imports.add_argument("--out", metavar="FILE", type=pathlib.Path, help="write the entries to FILE")


def _hosts(commands: Commands) -> None:
    hosts = commands.add_parser(
        "hosts",
        help="compare the declared machines with the stack file over SSH",
        description="Log in to every machine of the stack with its `cluster.ssh` settings and read its state. Nothing"
        " is changed. No other command connects to a declared address.",
    )
    hosts.add_argument("stack")
    hosts.add_argument(
        "--identity",
        metavar="FILE",
        type=pathlib.Path,
        help="private key; default: that of the SSH agent, or ~/.ssh/id_ed25519",
    )
    hosts.add_argument("--seconds", metavar="N", type=float, default=60, help="time limit of one machine; default: 60")


def _doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="examine a live cluster: ARC, scale sets, runners, nodes; print commands that cure what it finds",
        description="Compare a live cluster with its stack file, and print findings with the commands that cure them."
        " Nothing is changed: every request is a GET. The contents of Secrets are not read.",
    )
    doctor.add_argument("stack")
    doctor.add_argument(
        "--kubeconfig", metavar="FILE", type=pathlib.Path, help="kubeconfig; default: the one that the stack uses"
    )
    doctor.add_argument(
        "--context", metavar="NAME", help="context; default: the one that the stack uses, or FILE's current one"
    )
    doctor.add_argument("--format", choices=("text", "json"), default="text")


def _maintenance(commands: Commands) -> None:
    maintenance = commands.add_parser(
        "maintenance",
        help="free a machine of jobs, reboot it, and return it to service when its GPUs are back",
        description="Print the steps of a maintenance with their commands; with --run, do them. Jobs that run are never"
        " ended. A run that was interrupted continues when it is started again, on any machine.",
    )
    maintenance.add_argument("stack")
    maintenance.add_argument("node", metavar="NODE", help="machine of the stack file")
    maintenance.add_argument("--run", action="store_true", help="do the steps; default: print them")
    end = maintenance.add_mutually_exclusive_group()
    end.add_argument("--reboot", action="store_true", help="reboot the machine over SSH, then return it to service")
    end.add_argument("--finish", action="store_true", help="return the machine to service after work by hand")
    maintenance.add_argument(
        "--why", metavar="TEXT", default="maintenance", help="reason, recorded at the node; default: maintenance"
    )
    maintenance.add_argument(
        "--allow",
        metavar="NAME",
        action="append",
        default=[],
        choices=("quorum", "pool"),
        help="accept a refusal: quorum (etcd would lose it), pool (another machine of the pool is away)",
    )
    maintenance.add_argument(
        "--minutes", metavar="N", type=float, help="time limit of each wait; default: none, jobs may run for days"
    )
    maintenance.add_argument(
        "--identity",
        metavar="FILE",
        type=pathlib.Path,
        help="private key for --reboot; default: that of the SSH agent, or ~/.ssh/id_ed25519",
    )
    maintenance.add_argument(
        "--kubeconfig", metavar="FILE", type=pathlib.Path, help="kubeconfig; default: the one that the stack uses"
    )
    maintenance.add_argument(
        "--context", metavar="NAME", help="context; default: the one that the stack uses, or FILE's current one"
    )


def _pins(commands: Commands) -> None:
    pins = commands.add_parser(
        "pins",
        help="list every pinned version with its reason; look up runner releases",
        description="List every pinned version with its reason. With --refresh or --image, look up GitHub's runner over"
        " the network instead.",
    )
    action = pins.add_mutually_exclusive_group()
    action.add_argument("--refresh", action="store_true", help="update the checkout's table of runner releases")
    action.add_argument("--image", metavar="IMAGE", help="print the runner version in an image of yours")
    pins.add_argument(
        "--platform", metavar="OS/ARCH", default="linux/amd64", help="platform of --image; default: linux/amd64"
    )
    pins.add_argument("--releases", metavar="URL", help="list of releases for --refresh; default: GitHub's")
    pins.add_argument("--registry", metavar="URL", help="registry for --refresh; default: ghcr.io")
    pins.add_argument("--seconds", metavar="N", type=float, default=600, help="time limit of one request; default: 600")
    pins.add_argument("--format", choices=("text", "json"), default="text")
    pins.add_argument(
        "--on",
        metavar="DATE",
        type=day,
        default=datetime.date.today(),
        help="date of the review or of the look-up; default: today",
    )


def _upgrade(commands: Commands) -> None:
    upgrade = commands.add_parser("upgrade", help="write an upgrade into a stack file, in steps that lose no job")
    components = upgrade.add_subparsers(dest="component", required=True, metavar="COMPONENT")
    arc = components.add_parser("arc", help="another version of ARC: controller, CRDs and scale sets")
    arc.add_argument("stack")
    arc.add_argument("--to", metavar="VERSION", help="wanted version")
    arc.add_argument(
        "--from", dest="installed", metavar="VERSION", help="version in the cluster; default: the stack file's"
    )
    step = arc.add_mutually_exclusive_group()
    step.add_argument("--rollback", action="store_true", help="return to an older version, in the same steps")
    step.add_argument("--finish", action="store_true", help="end the upgrade after its `pulumi up`")
    arc.add_argument(
        "--kubeconfig", metavar="FILE", type=pathlib.Path, help="also check that the live cluster is ready for it"
    )
    arc.add_argument("--context", metavar="NAME", help="context of the kubeconfig; default: its current one")


def _schema(commands: Commands) -> None:
    schema = commands.add_parser("schema", help="print the JSON Schema of stack files, for editors")
    schema.add_argument("--out", metavar="FILE", type=pathlib.Path, help="write the schema to FILE")


def _sandbox(commands: Commands) -> None:
    sandbox = commands.add_parser("sandbox", help="run a stack on this machine")
    actions = sandbox.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser(
        "build", help="download or build the control plane's binaries ahead of time, once for all stacks"
    )
    for name, text in (
        ("up", "bring the stack up: a real control plane, simulated nodes and jobs"),
        ("status", "print the current state of a running sandbox"),
        ("jobs", "queue jobs at the simulated GitHub, and print the state of every job (requires up --arc real)"),
        ("github", "let the simulated GitHub end jobs, reject runners, revoke keys, delete scale sets"),
        ("down", "stop and remove the sandbox"),
        ("kubeconfig", "print the path of the sandbox's kubeconfig"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("stack")
        if name in ("up", "down"):
            action.add_argument(
                "--engine",
                choices=("pulumi",),
                help=f"rehearse: a real `pulumi {_ENGINE[name]}` into the sandbox",
            )
        if name in _SANDBOX_OPTIONS:
            _SANDBOX_OPTIONS[name](action)


def _sandbox_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--arc",
        choices=("simulated", "real"),
        default="simulated",
        help="real: run ARC's own controller and listeners, from its image or the folder in GPUFLEET_ARC;"
        " default: simulated",
    )
    up.add_argument(
        "--jobs",
        action="append",
        default=[],
        metavar="LABEL=N",
        help="jobs that GitHub assigns to a label; default: each label's share of a sample mix",
    )
    up.add_argument(
        "--binaries",
        metavar="DIR|download|build",
        help="use the control plane's binaries in DIR, only download them, or only build them from Go modules;"
        " default: download once, and build if the download fails",
    )


def _sandbox_jobs(jobs: argparse.ArgumentParser) -> None:
    jobs.add_argument("job", nargs="*", metavar="LABEL=N", help="N jobs for a label")
    jobs.add_argument("--seconds", metavar="N", type=float, default=30, help="run time of a job; default: 30")
    jobs.add_argument("--watch", action="store_true", help="update the table until these jobs have ended")


def _sandbox_github(github: argparse.ArgumentParser) -> None:
    events = github.add_subparsers(dest="event", required=True, metavar="EVENT")
    for name, text in (("finish", "let running jobs succeed"), ("fail", "let running jobs fail")):
        end = events.add_parser(name, help=text)
        end.add_argument(
            "job", nargs="*", metavar="LABEL[=N]", help="N jobs, or all jobs, of a label; default: all jobs"
        )
    deprecate = events.add_parser("deprecate-runners", help="reject new runners of the current image as too old")
    deprecate.add_argument("label", nargs="*", help="label; default: all labels")
    revoke = events.add_parser("revoke-key", help="revoke the key with which a project's runners register")
    revoke.add_argument("project")
    revoke.add_argument("--replaced", action="store_true", help="revoke the keys that the current one has replaced")
    delete = events.add_parser("delete-scale-set", help="delete a scale set at GitHub, but not in the cluster")
    delete.add_argument("label")


_SANDBOX_OPTIONS = {"up": _sandbox_up, "jobs": _sandbox_jobs, "github": _sandbox_github}
"""Functions that add the options of one action of the sandbox."""
