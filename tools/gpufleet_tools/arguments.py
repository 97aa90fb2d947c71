"""What the command `gpufleet` takes: its subcommands and their options."""

from __future__ import annotations

import argparse
import datetime
import pathlib
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_ENGINE = {"up": "up", "down": "destroy"}


def day(text: str) -> datetime.date:
    """A date on the command line; argparse names it after this function when it is none."""
    return datetime.date.fromisoformat(text)


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = argparse.ArgumentParser(
        prog="gpufleet",
        description="GPU CI clusters, previewed offline and brought up on one machine.",
        epilog="exit codes: 0 nothing to say, 1 findings, 2 invalid settings or arguments, 3 a fault of its own",
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
    _pins(commands)
    _schema(commands)
    _sandbox(commands)
    return top


def _add_day(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--on",
        metavar="DATE",
        type=day,
        default=datetime.date.today(),
        help="day on which acknowledgements and last days are judged (2027-01-31); today, when left out",
    )


def _check(commands: Commands) -> None:
    check = commands.add_parser("check", help="validate stack files and print findings")
    check.add_argument("stack", nargs="*", help="stack; all of the project's when none is named")
    check.add_argument(
        "--policy", action="store_true", help="run the program too, and judge what it registers; takes a second more"
    )
    _add_day(check)


def _preview(commands: Commands) -> None:
    preview = commands.add_parser("preview", help="say what `pulumi up` would create: no engine, cluster or network")
    preview.add_argument("stack")
    preview.add_argument("--format", choices=("tree", "yaml", "json"), default="tree")
    preview.add_argument("--dependencies", action="store_true", help="show in the tree what each resource waits for")
    preview.add_argument(
        "--out",
        metavar="DIR",
        type=pathlib.Path,
        help="write manifests, chart values, kubespray's inventory and plan.json",
    )
    _add_day(preview)


def _labels(commands: Commands) -> None:
    labels = commands.add_parser("labels", help="print the catalogue of labels, for the people who write workflows")
    labels.add_argument("stack", nargs="*", help="stack; all of the project's when none is named")
    labels.add_argument(
        "--format",
        choices=("text", "markdown", "json", "actionlint"),
        help="without: text in a terminal, markdown in a pipe or a file",
    )


def _diff(commands: Commands) -> None:
    diff = commands.add_parser("diff", help="say what changes between two revisions, for users and in each stack")
    diff.add_argument(
        "range",
        metavar="BASE..HEAD",
        help="two revisions of git; BASE...HEAD: since HEAD left BASE; BASE alone: against the working tree",
    )
    diff.add_argument("stack", nargs="*", help="stack; all of the project's when none is named")
    diff.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    diff.add_argument("--out", metavar="FILE", type=pathlib.Path, help="write it there")
    diff.add_argument("--allow", metavar="NAME", action="append", default=[], help="refusal that is meant")
    _add_day(diff)


def _capacity(commands: Commands) -> None:
    capacity = commands.add_parser("capacity", help="say what the node pools hold: guaranteed and burst jobs per label")
    capacity.add_argument("stack", nargs="*", help="stack; all of the project's when none is named")
    capacity.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: an object for one named stack, else a list"
    )


def _deployments(commands: Commands) -> None:
    deployments = commands.add_parser(
        "deployments", help="print the command that applies a stack's deployment settings"
    )
    deployments.add_argument("stack", help="stack, whose file is Pulumi.<stack>.deploy.yaml")
    deployments.add_argument("--organization", metavar="NAME", help="organisation of Pulumi Cloud that has the stack")


def _lint_workflows(commands: Commands) -> None:
    lint = commands.add_parser("lint-workflows", help="find the labels that workflows ask for and nobody serves")
    lint.add_argument("path", nargs="+", type=pathlib.Path, help="workflow file, or folder with .github/workflows")
    lint.add_argument("--format", choices=("text", "json", "sarif"), default="text")
    lint.add_argument("--repository", metavar="OWNER/NAME", help="whose workflows they are: only its labels count")
    lint.add_argument(
        "--also", action="append", default=[], metavar="LABEL", help="label, or pattern (*), that others serve"
    )
    lint.add_argument("--labels-only", action="store_true", help="leave actionlint's own checks out")


def _import(commands: Commands) -> None:
    imports = commands.add_parser("import", help="write stack file entries of scale sets that exist")
    imports.add_argument(
        "file", nargs="+", metavar="[LABEL=]FILE", help="values of ARC's chart, `helm get values`, or manifests"
    )
    imports.add_argument("--namespace", help="namespace of the runners, where the files do not say")
    imports.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="value that Helm was given beside the files"
    )
    imports.add_argument("--out", metavar="FILE", type=pathlib.Path, help="write the entries there")


def _hosts(commands: Commands) -> None:
    hosts = commands.add_parser(
        "hosts",
        help="ask the declared machines by SSH whether they are what the stack file says",
        description="Logs in to every machine of the stack with its `cluster.ssh`, reads what it is like, and changes"
        " nothing. The only command that opens a connection to a declared address.",
    )
    hosts.add_argument("stack")
    hosts.add_argument(
        "--identity",
        metavar="FILE",
        type=pathlib.Path,
        help="private key; without, that of an agent, or ~/.ssh/id_ed25519",
    )
    hosts.add_argument("--seconds", metavar="N", type=float, default=60, help="what one machine may take; 60")


def _pins(commands: Commands) -> None:
    pins = commands.add_parser(
        "pins",
        help="list every version that is fixed, and why; look up runner releases",
        description="Lists every version that is fixed, and why. With --refresh or --image, looks up GitHub's runner"
        " over the network instead.",
    )
    action = pins.add_mutually_exclusive_group()
    action.add_argument("--refresh", action="store_true", help="write the checkout's table of runner releases anew")
    action.add_argument("--image", metavar="IMAGE", help="print the runner version that an image of yours holds")
    pins.add_argument("--platform", metavar="OS/ARCH", default="linux/amd64", help="platform of --image; linux/amd64")
    pins.add_argument("--releases", metavar="URL", help="list of releases for --refresh; without, GitHub's")
    pins.add_argument("--registry", metavar="URL", help="registry for --refresh; without, ghcr.io")
    pins.add_argument("--seconds", metavar="N", type=float, default=600, help="what one answer may take; 600")
    pins.add_argument("--format", choices=("text", "json"), default="text")
    pins.add_argument(
        "--on",
        metavar="DATE",
        type=day,
        default=datetime.date.today(),
        help="day on which they are judged or looked up; today",
    )


def _schema(commands: Commands) -> None:
    schema = commands.add_parser("schema", help="print the JSON Schema of stack files, for editors")
    schema.add_argument("--out", metavar="FILE", type=pathlib.Path, help="write it there")


def _sandbox(commands: Commands) -> None:
    sandbox = commands.add_parser("sandbox", help="run a stack on this machine")
    actions = sandbox.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser(
        "build", help="download or build the control plane's binaries ahead of time, once for all stacks"
    )
    for name, text in (
        ("up", "bring the stack up: a real control plane, simulated nodes and jobs"),
        ("status", "print the table again"),
        ("jobs", "queue jobs at the simulated GitHub, and print what becomes of all (needs up --arc real)"),
        ("down", "end it and remove it"),
        ("kubeconfig", "print the path of its kubeconfig"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("stack")
        if name in ("up", "down"):
            action.add_argument(
                "--engine",
                choices=("pulumi",),
                help=f"rehearse: a real `pulumi {_ENGINE[name]}` into the sandbox",
            )
        if name == "jobs":
            action.add_argument("job", nargs="*", metavar="LABEL=N", help="N jobs for a label")
            action.add_argument("--seconds", metavar="N", type=float, default=30, help="how long each of them runs; 30")
        if name == "up":
            action.add_argument(
                "--arc",
                choices=("simulated", "real"),
                default="simulated",
                help="real: run ARC's own controller and listeners, from the folder in GPUFLEET_ARC; simulated",
            )
            action.add_argument(
                "--jobs",
                action="append",
                default=[],
                metavar="LABEL=N",
                help="jobs that GitHub assigns to a label; without, each label's share of a sample mix",
            )
            action.add_argument(
                "--binaries",
                metavar="DIR|download|build",
                help="use the control plane's binaries in DIR, only download them, or only build them from their Go"
                " modules; without, they are downloaded once, and built where that does not work",
            )
