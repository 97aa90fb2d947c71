"""The command `gpufleet`."""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import pathlib
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from fleet.arguments import parser
from fleet.sdk_modules import postpone

if TYPE_CHECKING:
    from fleet.findings import Report
    from sandbox.state import State

OK, FINDINGS, INVALID, BROKEN = 0, 1, 2, 3
"""Exit codes: nothing to say, findings, invalid input, a fault of the program itself."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    # A run is short, and makes many objects that all live to its end: collecting takes half of the time of 1,000
    # runners, and an orderly end of the interpreter 150 ms.
    gc.disable()
    arguments = parser().parse_args(argv)
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = OK
    except KeyboardInterrupt:
        code = 130
    except Exception:
        # Neither 1 nor 2: a fault must not look like a finding.
        traceback.print_exc()
        code = BROKEN
    sys.stderr.flush()
    os._exit(code)


def run(arguments: argparse.Namespace) -> int:
    """Runs a command and returns its exit code. Bad input is said in one line for each fault, on standard error."""
    root = arguments.root.resolve()
    if not (root / "Pulumi.yaml").is_file():
        print(f"gpufleet: {root} has no Pulumi.yaml; name the project's folder with -C", file=sys.stderr)
        return INVALID
    # The project's own modules come first, whatever checkout this command was installed from.
    sys.path.insert(0, str(root))

    postpone()
    try:
        return _COMMANDS[arguments.command](root, arguments)
    except BrokenPipeError:
        raise
    except OSError as error:
        # A folder that cannot be written, a disk that is full.
        print(f"gpufleet: {error.filename}: {error.strerror}" if error.filename else error, file=sys.stderr)
    except Exception as error:
        if not _is_bad_input(error):
            raise
        print(error, file=sys.stderr)
    return INVALID


def _is_bad_input(error: Exception) -> bool:
    """Whether an exception says in its own words what is wrong with what was given."""
    # Imported here: not every command needs the SDK, which takes longer to import than the rest of some.
    import pulumi

    from fleet.recorder import RecordingError
    from stacks.fault import InvalidSettings

    return isinstance(error, InvalidSettings | pulumi.RunError | RecordingError)


def _check(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import findings, stack
    from stacks.fault import InvalidSettings

    names = arguments.stack or stack.names(root)
    code = OK if names else INVALID
    if not names:
        print(f"gpufleet: {root} has no stack files (Pulumi.<stack>.yaml)", file=sys.stderr)
    for name in names:
        try:
            checked = stack.read(root, name)
        except InvalidSettings as invalid:
            print(invalid, file=sys.stderr)
            code = INVALID
            continue
        plan = checked.plan() if arguments.policy else None
        report = findings.report(checked.settings, checked.file, arguments.on, plan)
        for line in report.lines():
            print(line)
        print(f"{name}: {_counted(report)}")
        code = max(code, FINDINGS if report.open else OK)
    return code


def _preview(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import findings, preview, stack

    previewed = stack.read(root, arguments.stack)
    plan = previewed.plan()
    report = findings.report(previewed.settings, previewed.file, arguments.on, plan)
    if arguments.out:
        from fleet.document import document

        files = preview.write(plan, document(plan, report), arguments.out)
        print(f"{len(files)} files written to {arguments.out}")
    elif arguments.format == "json":
        from fleet.document import document

        print(document(plan, report).model_dump_json(indent=2))
    elif arguments.format == "yaml":
        print(preview.manifests(plan), end="")
    else:
        print(preview.tree(plan, previewed.settings))
        print(_counted(report))
    for line in report.lines():
        print(line, file=sys.stderr)
    return FINDINGS if report.open else OK


def _labels(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import labels, stack

    found = labels.catalogue(stack.read(root, name) for name in arguments.stack or stack.names(root))
    if arguments.format == "json":
        print(found.model_dump_json(indent=2))
    elif arguments.format == "actionlint":
        print(labels.actionlint(found), end="")
    else:
        print(labels.markdown(found), end="")
    return OK


def _lint_workflows(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import labels, lint_workflows, stack
    from sandbox import actionlint

    return lint_workflows.run(
        arguments.path,
        labels.catalogue(stack.read(root, name) for name in stack.names(root)),
        also=arguments.also,
        repository=arguments.repository,
        today=datetime.date.today(),
        form=arguments.format,
        find_actionlint=None if arguments.labels_only else actionlint.built,
    )


def _import(_root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import runner_import

    return runner_import.run(arguments.file, arguments.namespace, arguments.set, arguments.out)


def _pins(_root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import compatibility, pins
    from sandbox.terminal import console

    try:
        found = pins.pins()
    except pins.PinError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    due, rows = pins.due(found, arguments.on), compatibility.due(arguments.on)
    if arguments.format == "json":
        print(found.model_dump_json(indent=2))
    else:
        console().print(pins.table(found))
        print(*(f"compatibility: {row}" for row in rows), sep="\n", end="\n" if rows else "")
        print(f"{len(found.pins)} versions are fixed, {due} to be looked at again by now")
    return FINDINGS if due or rows else OK


def _hosts(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import declared_hosts, hosts, stack
    from sandbox.terminal import console

    try:
        reports = declared_hosts.surveyed(stack.read(root, arguments.stack), arguments.identity, arguments.seconds)
    except declared_hosts.NoKey as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    console().print(hosts.table(reports))
    wrong = sum(bool(report.failures) for report in reports)
    print(f"{len(reports)} machine{'s' * (len(reports) != 1)} asked, {wrong} with something to be done")
    return FINDINGS if wrong else OK


def _diff(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import diff, diff_report, revisions

    try:
        compared = revisions.compared(root, arguments.range, arguments.stack, arguments.on)
    except revisions.RevisionError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    found = diff.difference(compared, arguments.stack, arguments.on, arguments.allow)
    if arguments.format == "json":
        said = found.model_dump_json(indent=2) + "\n"
    else:
        said = diff_report.markdown(found) if arguments.format == "markdown" else diff_report.text(found)
    if arguments.out:
        arguments.out.write_text(said)
        print(f"{diff_report.headline(found)}: written to {arguments.out}")
    else:
        print(said, end="")
    return INVALID if found.unsaid else FINDINGS if found.refused else OK


def _capacity(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import capacity, capacity_cost, stack

    settings = stack.read(root, arguments.stack).settings
    held = capacity.capacity(arguments.stack, settings, capacity.declared(settings))
    found = capacity_cost.priced(held, settings)
    said = capacity.text(found) + (f"\n{capacity_cost.text(found.cost)}" if found.cost else "")
    print(found.model_dump_json(indent=2) if arguments.format == "json" else said.rstrip("\n"))
    return FINDINGS if any(pool.excess for pool in found.pools) else OK


def _deployments(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import deployment_settings

    try:
        settings = deployment_settings.read(root, arguments.stack)
    except deployment_settings.DeploymentSettingsError as error:
        print(error, file=sys.stderr)
        return INVALID
    owner = f"{arguments.organization}/" if arguments.organization else ""
    print(shlex.join(deployment_settings.edit(f"{owner}{arguments.stack}", settings)))
    return OK


def _counted(report: Report) -> str:
    count, borne = len(report.open), len(report.acknowledged)
    text = "no findings" if not count else f"{count} finding{'s' * (count > 1)}"
    return text + (f", {borne} acknowledged" if borne else "")


def _sandbox(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from sandbox.errors import SandboxError

    try:
        return _SANDBOX[arguments.action](root, arguments)
    except SandboxError as error:
        for line in error.lines:
            print(f"gpufleet: {line}", file=sys.stderr)
    except ModuleNotFoundError as missing:
        # `pulumi install` installs what a deployment needs; the sandbox needs more.
        print(f"gpufleet: {missing.name} is not installed: the sandbox needs what `make up` installs", file=sys.stderr)
    return INVALID


def _sandbox_build(_root: pathlib.Path, _arguments: argparse.Namespace) -> int:
    from sandbox import binaries
    from sandbox.aws import build

    print(f"the control plane's binaries are in {binaries.find().directory}")
    print(f"Karpenter, for stacks on EKS, is in {build.find()}")
    return OK


def _sandbox_up(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import preview, stack

    running = stack.read(root, arguments.stack)
    plan = running.plan()
    print(preview.tree(plan, running.settings))
    sys.stdout.flush()

    from sandbox import lifecycle, report
    from sandbox.terminal import console

    bring_up = lifecycle.rehearse if arguments.engine else lifecycle.up
    outcome = bring_up(running, plan, arguments.binaries, arguments.jobs)
    tables = report.tables(outcome.state, running.settings, plan, outcome.jobs, installed=arguments.engine is not None)
    console().print(tables)
    print(f"\n{outcome.changed}: {_summary(outcome.state)}")
    return FINDINGS if outcome.state.pending else OK


def _summary(state: State) -> str:
    runners = f"{state.running} runner pod{'s' * (state.running != 1)} running"
    return f"{runners}, {state.pending} pending" if state.pending else runners


def _sandbox_status(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import stack
    from sandbox import lifecycle, report
    from sandbox.terminal import console

    running = stack.read(root, arguments.stack)
    state, mix = lifecycle.status(running)
    console().print(report.tables(state, running.settings, running.plan(), mix))
    print(f"\n{_summary(state)}")
    return FINDINGS if state.pending else OK


def _sandbox_down(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import stack
    from sandbox import lifecycle

    if arguments.engine:
        ended = lifecycle.destroy(stack.read(root, arguments.stack))
    else:
        ended = lifecycle.down(root, arguments.stack)
    print(f"the sandbox of {arguments.stack} {'is gone' if ended else 'was not up: nothing to do'}")
    return OK


def _sandbox_kubeconfig(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from fleet import stack
    from sandbox import lifecycle

    print(lifecycle.running(stack.read(root, arguments.stack)).kubeconfig)
    return OK


_COMMANDS = {
    "check": _check,
    "preview": _preview,
    "labels": _labels,
    "lint-workflows": _lint_workflows,
    "import": _import,
    "hosts": _hosts,
    "pins": _pins,
    "diff": _diff,
    "capacity": _capacity,
    "deployments": _deployments,
    "sandbox": _sandbox,
}
_SANDBOX = {
    "build": _sandbox_build,
    "up": _sandbox_up,
    "status": _sandbox_status,
    "down": _sandbox_down,
    "kubeconfig": _sandbox_kubeconfig,
}
