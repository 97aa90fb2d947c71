"""The command `gpufleet`."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from gpufleet_tools import short_process, terminal
from gpufleet_tools.arguments import parser

if TYPE_CHECKING:
    from gpufleet_tools.check.findings import Report
    from gpufleet_tools.sandbox.state import State

OK, FINDINGS, INVALID, INTERNAL_ERROR = 0, 1, 2, 3
"""Exit codes: success, findings, invalid input, internal error."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    short_process.begin()
    arguments = parser().parse_args(argv)
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = OK
    except KeyboardInterrupt:
        code = 130
    except Exception:
        # Neither 1 nor 2: an internal error must not look like a finding.
        traceback.print_exc()
        code = INTERNAL_ERROR
    short_process.end(code)


def run(arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code. Print one line for each fault of the input on standard error."""
    root = arguments.root.resolve()
    if not (root / "Pulumi.yaml").is_file():
        print(f"gpufleet: {root} has no Pulumi.yaml; name the project's folder with -C", file=sys.stderr)
        return INVALID
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
    """Return whether the exception's message describes invalid input."""
    # Imported here: not every command needs the SDK, whose import takes longer than the rest of some commands.
    import pulumi

    from gpufleet_stacks.settings.problems import InvalidSettings
    from gpufleet_tools.plan.recorder import RecordingError

    return isinstance(error, InvalidSettings | pulumi.RunError | RecordingError)


def _check(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_stacks.settings.problems import InvalidSettings
    from gpufleet_tools.check import findings
    from gpufleet_tools.plan import stack

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
        print(f"{name}: {_finding_count(report)}")
        code = max(code, FINDINGS if report.open else OK)
    return code


def _preview(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.check import findings
    from gpufleet_tools.plan import machines, preview, stack

    previewed = stack.read(root, arguments.stack)
    plan = previewed.plan()
    report = findings.report(previewed.settings, previewed.file, arguments.on, plan)
    plan = machines.completed(plan, previewed.settings)
    if arguments.out:
        from gpufleet_tools.plan.document import document

        files = preview.write(plan, document(plan, report), arguments.out)
        print(f"{len(files)} files written to {arguments.out}")
    elif arguments.format == "json":
        from gpufleet_tools.plan.document import document

        print(document(plan, report).model_dump_json(indent=2))
    elif arguments.format == "yaml":
        print(preview.manifests(plan), end="")
    else:
        columns = terminal.width()
        print(preview.tree(plan, previewed.settings, dependencies=arguments.dependencies, columns=columns))
        print(_finding_count(report))
    for line in report.lines():
        print(line, file=sys.stderr)
    return FINDINGS if report.open else OK


def _labels(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.labels import catalogue as labels
    from gpufleet_tools.labels import page
    from gpufleet_tools.plan import stack

    stacks = [stack.read(root, name) for name in arguments.stack or stack.names(root)]
    found = labels.catalogue(stacks, capacity=arguments.format != "actionlint")
    if arguments.format == "json":
        print(found.model_dump_json(indent=2))
    elif arguments.format == "html":
        print(page.html(found), end="")
    elif arguments.format == "actionlint":
        print(labels.actionlint(found), end="")
    elif arguments.format == "text" or (arguments.format is None and sys.stdout.isatty()):
        print(labels.text(found, terminal.width()), end="")
    else:
        print(labels.markdown(found), end="")
    return OK


def _lint_workflows(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.labels import catalogue as labels
    from gpufleet_tools.plan import stack
    from gpufleet_tools.sandbox.build import actionlint
    from gpufleet_tools.workflows import lint as lint_workflows

    return lint_workflows.run(
        arguments.path,
        labels.catalogue((stack.read(root, name) for name in stack.names(root)), capacity=False),
        also=arguments.also,
        repository=arguments.repository,
        today=datetime.date.today(),
        form=arguments.format,
        find_actionlint=None if arguments.labels_only else actionlint.built,
    )


def _import(_root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.imports import proof as runner_import

    return runner_import.run(arguments.file, arguments.namespace, arguments.set, arguments.out, arguments.substitute)


def _schema(_root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_stacks.settings import schema

    text = schema.text(schema.stack_file_schema())
    if arguments.out:
        arguments.out.write_text(text)
        print(f"JSON Schema of stack files written to {arguments.out}")
    else:
        print(text, end="")
    return OK


def _pins(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    if arguments.refresh or arguments.image is not None:
        return _look_up(root, arguments)
    from gpufleet_tools.check import compatibility, pins

    try:
        found = pins.pins()
    except pins.PinError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    due, rows = pins.due(found, arguments.on), compatibility.due(arguments.on)
    if arguments.format == "json":
        print(found.model_dump_json(indent=2))
    else:
        print(pins.text(found, terminal.width()))
        print(*(f"compatibility: {row}" for row in rows), sep="\n", end="\n" if rows else "")
        print(f"{len(found.pins)} pinned versions, {due} due for review")
    return FINDINGS if due or rows else OK


def _look_up(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.runner_images import command
    from gpufleet_tools.runner_images.web import LookupFailed

    try:
        if arguments.image is not None:
            lines, useful = command.image(arguments.image, arguments.platform, arguments.seconds, arguments.on)
        else:
            lines = command.refresh(root, arguments.on, arguments.seconds, arguments.releases, arguments.registry)
            useful = True
    except LookupFailed as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    print(*lines, sep="\n")
    return OK if useful else FINDINGS


def _upgrade(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.upgrade import arc

    request = arc.Request(
        to=arguments.to,
        installed=arguments.installed,
        rollback=arguments.rollback,
        finish=arguments.finish,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
    )
    try:
        lines = arc.run(root, arguments.stack, request)
    except arc.UpgradeError as error:
        for line in str(error).splitlines():
            print(f"gpufleet: {line}", file=sys.stderr)
        return INVALID
    print(*lines, sep="\n")
    return OK


def _hosts(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.hosts import declared as declared_hosts
    from gpufleet_tools.hosts import table as hosts
    from gpufleet_tools.plan import stack

    try:
        reports = declared_hosts.surveyed(stack.read(root, arguments.stack), arguments.identity, arguments.seconds)
    except declared_hosts.NoKey as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    terminal.console().print(hosts.table(reports))
    for line in (*hosts.unmeasured(reports), *hosts.last_snapshots(reports)):
        print(line)
    wrong = sum(bool(report.failures) for report in reports)
    print(f"{len(reports)} machine{'s' * (len(reports) != 1)} surveyed, {wrong} with something to fix")
    return FINDINGS if wrong else OK


def _doctor(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack

    examined = stack.read(root, arguments.stack)
    try:
        from gpufleet_tools.doctor import diagnosis, document, report
        from gpufleet_tools.doctor.finding import DoctorError
    except ModuleNotFoundError as missing:
        return _not_installed("doctor", missing)
    try:
        found = diagnosis.diagnose(examined, arguments.kubeconfig, arguments.context)
    except DoctorError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    if arguments.format == "json":
        print(document.document(found).model_dump_json(indent=2))
    else:
        print(report.text(found, terminal.width()))
        print(f"\n{report.summary(found)}")
    return FINDINGS if found.findings or found.view.snapshot.unread else OK


def _maintenance(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack

    maintained = stack.read(root, arguments.stack)
    try:
        from gpufleet_tools.maintenance import command
    except ModuleNotFoundError as missing:
        return _not_installed("maintenance", missing)
    request = command.Request(
        name=arguments.node,
        reboot=arguments.reboot,
        finish=arguments.finish,
        run=arguments.run,
        why=arguments.why,
        allowed=frozenset(arguments.allow),
        minutes=arguments.minutes,
        identity=arguments.identity,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
    )
    try:
        is_done = command.maintain(maintained, request, lambda line: print(line, flush=True))
    except command.MaintenanceError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return INVALID
    return OK if is_done else FINDINGS


def _diff(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.fork_server import fork_server

    with fork_server() as server:
        # Imported meanwhile: the server takes longer for its libraries.
        from gpufleet_tools.diff import difference as diff
        from gpufleet_tools.diff import refused_changes, revisions
        from gpufleet_tools.diff import report as diff_report

        try:
            compared = revisions.compared(root, arguments.range, arguments.stack, arguments.on, server)
        except revisions.RevisionError as error:
            print(f"gpufleet: {error}", file=sys.stderr)
            if arguments.out:
                # Otherwise the comment about an earlier state of the pull request would stay.
                failure = diff.not_compared(arguments.range, str(error))
                arguments.out.write_text(diff_report.written(failure, arguments.format))
            return INVALID
    found = diff.difference(compared, arguments.stack, arguments.on, arguments.allow)
    if unknown := [*refused_changes.unknown_allowances(arguments.allow, (each.name for each in found.refusals))]:
        for line in unknown:
            print(f"gpufleet: {line}", file=sys.stderr)
        return INVALID
    text = diff_report.written(found, arguments.format)
    if arguments.format == "text" and not arguments.out:
        text = terminal.folded(text, terminal.width())
    if arguments.out:
        arguments.out.write_text(text)
        print(f"{diff_report.headline(found)}: written to {arguments.out}")
    else:
        print(text, end="")
    return INVALID if found.errors else FINDINGS if found.refused else OK


def _capacity(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.capacity import cost as capacity_cost
    from gpufleet_tools.capacity import stack_capacity as capacity
    from gpufleet_tools.plan import stack

    found = []
    for name in arguments.stack or stack.names(root):
        settings = stack.read(root, name).settings
        held = capacity.capacity(name, settings, capacity.declared(settings))
        found.append(capacity_cost.priced(held, settings))
    if not found:
        print(f"gpufleet: {root} has no stack files (Pulumi.<stack>.yaml)", file=sys.stderr)
        return INVALID
    if arguments.format == "json":
        documents = [each.model_dump(mode="json") for each in found]
        print(json.dumps(documents[0] if len(arguments.stack) == 1 else documents, indent=2))
    else:
        columns = terminal.width()
        texts = [
            capacity.text(each, columns) + (f"\n{capacity_cost.text(each.cost, columns)}" if each.cost else "")
            for each in found
        ]
        headed = [f"{each.stack}:\n{text}" for each, text in zip(found, texts, strict=True)]
        print("\n".join(texts if len(found) == 1 else headed).rstrip("\n"))
    return FINDINGS if any(pool.excess for each in found for pool in each.pools) else OK


def _deployments(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools import deployments as deployment_settings

    try:
        settings = deployment_settings.read(root, arguments.stack)
    except deployment_settings.DeploymentSettingsError as error:
        print(error, file=sys.stderr)
        return INVALID
    owner = f"{arguments.organization}/" if arguments.organization else ""
    print(shlex.join(deployment_settings.edit(f"{owner}{arguments.stack}", settings)))
    for note in deployment_settings.not_cleared(settings):
        print(f"note: {note}", file=sys.stderr)
    return OK


def _finding_count(report: Report) -> str:
    """Return `2 findings, 1 acknowledged`."""
    count, acknowledged = len(report.open), len(report.acknowledged)
    text = "no findings" if not count else f"{count} finding{'s' * (count > 1)}"
    return text + (f", {acknowledged} acknowledged" if acknowledged else "")


def _sandbox(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.sandbox.errors import SandboxError

    try:
        return _SANDBOX[arguments.action](root, arguments)
    except SandboxError as error:
        for line in error.lines:
            print(f"gpufleet: {line}", file=sys.stderr)
    except ModuleNotFoundError as missing:
        return _not_installed("the sandbox", missing)
    return INVALID


def _not_installed(what: str, missing: ModuleNotFoundError) -> int:
    """Report a missing dependency that a deployment does not install."""
    install = "pip install 'gpufleet[sandbox]' (in a checkout of gpufleet: make up)"
    print(f"gpufleet: {what} requires {missing.name}, which is not installed; run {install}", file=sys.stderr)
    return INVALID


def _sandbox_build(_root: pathlib.Path, _arguments: argparse.Namespace) -> int:
    from gpufleet_tools.sandbox.build import binaries
    from gpufleet_tools.sandbox.build import karpenter as build

    print(f"the control plane's binaries are in {binaries.find().directory}")
    print(f"Karpenter, for stacks on EKS, is in {build.find()}")
    return OK


def _sandbox_up(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import preview, stack

    running = stack.read(root, arguments.stack)
    plan = running.plan()
    print(preview.tree(plan, running.settings, columns=terminal.width()))
    sys.stdout.flush()

    from gpufleet_tools.sandbox import lifecycle, report

    bring_up = lifecycle.rehearse if arguments.engine else lifecycle.up
    outcome = bring_up(running, plan, arguments.binaries, arguments.jobs, runs_arc=arguments.arc == "real")
    tables = report.tables(
        outcome.state,
        running.settings,
        plan,
        outcome.jobs,
        installed=arguments.engine is not None,
        runs_arc=arguments.arc == "real",
    )
    terminal.console().print(tables)
    print(f"\n{outcome.changed}: {_summary(outcome.state)}")
    return FINDINGS if outcome.state.pending else OK


def _summary(state: State) -> str:
    runners = f"{state.running} runner pod{'s' * (state.running != 1)} running"
    return f"{runners}, {state.pending} pending" if state.pending else runners


def _sandbox_status(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack
    from gpufleet_tools.sandbox import lifecycle, report

    running = stack.read(root, arguments.stack)
    found = lifecycle.status(running)
    terminal.console().print(
        report.tables(
            found.state,
            running.settings,
            running.plan(),
            found.jobs,
            installed=found.installed,
            runs_arc=found.runs_arc,
        )
    )
    print(f"\n{_summary(found.state)}")
    return FINDINGS if found.state.pending else OK


def _sandbox_jobs(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack
    from gpufleet_tools.sandbox import simulated_github

    running = stack.read(root, arguments.stack)
    for line in simulated_github.queue_jobs(running, arguments.job, arguments.seconds):
        print(line, flush=True)
    console = terminal.console()
    if arguments.watch:
        simulated_github.watch(running, console)
    else:
        jobs = simulated_github.connected(running).call("state")["jobs"]
        console.print(simulated_github.jobs_table(running, jobs))
    return OK


def _sandbox_github(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack
    from gpufleet_tools.sandbox import simulated_github

    running = stack.read(root, arguments.stack)
    if arguments.event in simulated_github.RESULTS:
        lines = simulated_github.end_jobs(running, arguments.event, arguments.job)
    elif arguments.event == "deprecate-runners":
        lines = simulated_github.deprecate_runners(running, arguments.label)
    elif arguments.event == "revoke-key":
        lines = simulated_github.revoke_key(running, arguments.project, replaced=arguments.replaced)
    else:
        lines = simulated_github.delete_scale_set(running, arguments.label)
    print("\n".join(lines))
    return OK


def _sandbox_down(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack
    from gpufleet_tools.sandbox import lifecycle

    if arguments.engine:
        ended = lifecycle.destroy(stack.read(root, arguments.stack))
    else:
        ended = lifecycle.down(root, arguments.stack)
    print(f"the sandbox of {arguments.stack} {'was removed' if ended else 'is not running; nothing to do'}")
    return OK


def _sandbox_kubeconfig(root: pathlib.Path, arguments: argparse.Namespace) -> int:
    from gpufleet_tools.plan import stack
    from gpufleet_tools.sandbox import lifecycle

    print(lifecycle.running(stack.read(root, arguments.stack)).kubeconfig)
    return OK


_COMMANDS = {
    "check": _check,
    "preview": _preview,
    "labels": _labels,
    "lint-workflows": _lint_workflows,
    "import": _import,
    "hosts": _hosts,
    "doctor": _doctor,
    "maintenance": _maintenance,
    "pins": _pins,
    "upgrade": _upgrade,
    "schema": _schema,
    "diff": _diff,
    "capacity": _capacity,
    "deployments": _deployments,
    "sandbox": _sandbox,
}
_SANDBOX = {
    "build": _sandbox_build,
    "up": _sandbox_up,
    "status": _sandbox_status,
    "jobs": _sandbox_jobs,
    "github": _sandbox_github,
    "down": _sandbox_down,
    "kubeconfig": _sandbox_kubeconfig,
}
