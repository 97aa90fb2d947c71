"""Evaluation of one revision: its stacks with their labels, findings and resources.

`gpufleet diff` runs this file as a program in a checkout of the revision: `python -P evaluation.py OUT KEY DAY
[STACK...]`. A checkout of this repository is evaluated with its own code. The program writes an `Evaluation` to OUT.
Fields that were added later have a default, and renamed fields have an alias, so that evaluations of older revisions
can be read."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import importlib
import pathlib
import re
import sys
import traceback
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from gpufleet_stacks.settings.stack_file import StackFile
    from gpufleet_tools.capacity.cost import StackCost
    from gpufleet_tools.capacity.stack_capacity import Pool, StackCapacity
    from gpufleet_tools.plan.plan import Plan, Resource
    from gpufleet_tools.plan.stack import Stack

HIDDEN = "<secret:"
"""Prefix of a secret leaf. A keyed digest follows, which distinguishes secrets in this comparison only."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class EvaluatedResource(_Part):
    """One registration."""

    urn: str
    """Identity of the resource."""
    type: str
    """Type token."""
    name: str
    """Logical name."""
    parent: str | None
    """URN of its parent."""
    kind: str
    """`component`, `resource`, `lookup` or `provider`."""
    provider: str | None
    """URN of its provider."""
    opaque: bool
    """Whether its children or objects are unknown until its provider runs."""
    inputs: dict[str, Any]
    """Inputs; a secret leaf is a digest."""
    options: dict[str, Any]
    """Resource options that differ from their defaults."""


class EvaluatedLabel(_Part):
    """One label of one stack."""

    label: str
    """Value of `runs-on`."""
    stack: str
    """Stack that serves it."""
    cluster: str
    """Cluster that runs its jobs."""
    config_url: str
    """Organisation or repository whose jobs it runs."""
    runner_group: str | None
    """GitHub runner group; None is the default group."""
    gpus: int
    """GPUs of one runner."""
    accelerator: str | None
    """Model of the GPUs."""
    cpu: str
    """Cores of one runner, a Kubernetes quantity."""
    memory: str
    """Memory of one runner, a Kubernetes quantity."""
    docker: bool
    """Whether jobs can use Docker."""
    # Older revisions write `least` and `most`.
    min: int = Field(validation_alias=AliasChoices("min", "least"))
    """Idle runners."""
    max: int = Field(validation_alias=AliasChoices("max", "most"))
    """Maximum number of jobs at the same time."""
    until: datetime.date | None
    """Expiry date of a deprecated label."""
    use: str | None
    """Label to use instead of a deprecated one."""
    guaranteed: int | None = None
    """Jobs that always find room, whatever other labels run; None if not computed."""
    burst: int | None = None
    """Jobs that run if no other label uses the pool."""
    runner_version: str | None = None
    """Version of GitHub's runner; None if unknown."""
    no_jobs_from: datetime.date | None = None
    """First day on which GitHub assigns no jobs to that version; None if unknown."""
    cost_per_hour: float | None = None
    """US dollars an hour for provisioned nodes that hold as many of its jobs as the pool's limits admit, and no others;
    None if no nodes are provisioned, or prices are unknown."""


class EvaluatedPool(_Part):
    """A node pool of a stack."""

    nodes: int
    """Number of nodes; 0 if Karpenter provisions them."""
    gpus: int
    """GPUs of all nodes; 0 if Karpenter provisions them."""
    # Older revisions write `bought`.
    provisioned: dict[str, str] = Field(default={}, validation_alias=AliasChoices("provisioned", "bought"))
    """Instance types, limits and jobs on one GPU of a pool whose nodes Karpenter provisions; empty for other pools."""


class EvaluatedCost(_Part):
    """Cost per hour of a stack with every label at its max."""

    per_hour: float | None
    """US dollars; None if no instance type with a known price holds the jobs of some label."""
    waiting: int
    """Jobs that wait because limits admit no more nodes."""
    basis: str
    """Kind and date of the prices."""


class EvaluatedFinding(_Part):
    """An open finding of a stack."""

    name: str
    """Kind of the finding."""
    severity: Literal["error", "warning", "note"]
    """Severity of the finding."""
    path: str
    """Setting that causes the finding."""
    message: str
    """Fact, consequence and remedy."""


class EvaluatedStack(_Part):
    """One stack."""

    # Older revisions write `faults`.
    problems: list[str] = Field(default=[], validation_alias=AliasChoices("problems", "faults"))
    """Reasons why it cannot be evaluated, one line each. If there are any, all other fields are empty."""
    labels: list[EvaluatedLabel] = []
    """Labels of the stack."""
    settings: list[tuple[tuple[str, ...], str]] | None = None
    """Path and value of every setting; None in an evaluation of labels only, and of older revisions."""
    secrets: dict[str, str] = {}
    """Digest of the stored text, usually a ciphertext, of each secret key."""
    resources: list[EvaluatedResource] = []
    """Registrations, sorted by URN; empty in an evaluation of labels only."""
    findings: list[EvaluatedFinding] = []
    """Open findings, in the order of the file."""
    pools: dict[str, EvaluatedPool] = {}
    """Node pools."""
    cost: EvaluatedCost | None = None
    """Cost at max; None if no nodes are provisioned, or it was not computed."""


class Evaluation(_Part):
    """Evaluation of a revision."""

    form: Literal[1] = 1
    """Version of the format."""
    outputs: Literal["unknown", "inputs"] = "unknown"
    """Values that depend on outputs of other resources: unknown, as in the preview of a new stack, or computed from the
    inputs of those resources."""
    stacks: dict[str, EvaluatedStack]
    """Every stack with a stack file, by name."""


def import_code() -> None:
    """Import the modules that every evaluation uses. The functions below import them too: the command that only reads
    evaluations does without them."""
    from gpufleet_tools.capacity import cost  # noqa: F401
    from gpufleet_tools.check import findings  # noqa: F401
    from gpufleet_tools.labels import catalogue  # noqa: F401


def evaluation(root: pathlib.Path, key: str, day: datetime.date, selected: Collection[str] | None) -> Evaluation:
    """Return the evaluation of the checkout in `root` on a day. Of stacks that are not `selected`, it has labels and
    secrets only; None selects all."""
    from gpufleet_tools.plan import stack

    names = stack.names(root)
    complete = names if selected is None else selected
    stacks = {name: _stack(root, name, key, day, name in complete) for name in names}
    return Evaluation(outputs="inputs", stacks=stacks)


def _stack(root: pathlib.Path, name: str, key: str, day: datetime.date, complete: bool) -> EvaluatedStack:
    import pulumi

    from gpufleet_stacks.settings.problems import InvalidSettings
    from gpufleet_tools.plan import stack
    from gpufleet_tools.plan.recorder import RecordingError

    try:
        return _evaluated(stack.read(root, name), key, day, complete)
    except (InvalidSettings, pulumi.RunError, RecordingError) as error:
        return EvaluatedStack(problems=str(error).splitlines())
    except (Exception, SystemExit) as error:
        # The program is that of another revision and may raise any exception, which is a problem of that revision.
        from gpufleet_stacks.settings.secrets import redacted

        frames = traceback.extract_tb(error.__traceback__)
        # A library may have raised it, for a line of the project.
        own = [frame for frame in frames if pathlib.Path(frame.filename).is_relative_to(root)]
        last = [*frames, *own][-1]
        message = " ".join(traceback.format_exception_only(error)[-1].split())
        where = f"Pulumi.{name}.yaml: {pathlib.Path(last.filename).name}:{last.lineno}"
        return EvaluatedStack(problems=[redacted(f"{where}: {message}".replace(f"{root}/", ""))])


def _evaluated(stack: Stack, key: str, day: datetime.date, complete: bool) -> EvaluatedStack:
    secrets = _secrets(stack, key)
    if not complete:
        return EvaluatedStack(labels=_labels(stack, None, None), secrets=secrets)

    from gpufleet_stacks.settings.problems import dotted
    from gpufleet_tools.check import findings
    from gpufleet_tools.diff.settings.flattened import flattened

    capacity, cost, plan = _capacity(stack), _cost(stack), _plan(stack, secrets)
    return EvaluatedStack(
        labels=_labels(stack, capacity, cost),
        settings=[*flattened(stack.settings)],
        secrets=secrets,
        resources=_resources(stack, plan, secrets, key),
        findings=[
            EvaluatedFinding(
                name=finding.name, severity=finding.severity, path=dotted(at.path), message=finding.message
            )
            for finding, at in findings.report(stack.settings, stack.file, day, plan).open
        ],
        pools=_pools(stack, capacity),
        cost=_total(cost),
    )


def _capacity(stack: Stack) -> StackCapacity | None:
    from gpufleet_tools.capacity import stack_capacity as capacity

    return capacity.capacity(stack.name, stack.settings, capacity.declared(stack.settings))


def _cost(stack: Stack) -> StackCost | None:
    from gpufleet_tools.capacity import cost as capacity_cost

    return capacity_cost.stack_cost(stack.settings)


def _total(cost: StackCost | None) -> EvaluatedCost | None:
    if cost is None:
        return None
    waiting = sum(pool.waiting for pool in cost.pools)
    return EvaluatedCost(per_hour=cost.cost_per_hour, waiting=waiting, basis=cost.basis)


def _pools(stack: Stack, capacity: StackCapacity | None) -> dict[str, EvaluatedPool]:
    return {pool.pool: _pool(pool) for pool in (capacity.pools if capacity else ())}


def _pool(pool: Pool) -> EvaluatedPool:
    if pool.kind == "elastic":
        return EvaluatedPool(nodes=0, gpus=0, provisioned=pool.provisioned)
    return EvaluatedPool(nodes=pool.nodes, gpus=pool.gpus)


def _labels(stack: Stack, capacity: StackCapacity | None, cost: StackCost | None) -> list[EvaluatedLabel]:
    from gpufleet_tools.labels import catalogue as labels

    runners = stack.settings.runners
    held = {label.label: label for pool in (capacity.pools if capacity else ()) for label in pool.labels}
    prices = {label.label: label.cost_per_hour for pool in (cost.pools if cost else ()) for label in pool.labels}
    return [
        EvaluatedLabel(
            **entry.model_dump(by_alias=False, include=set(EvaluatedLabel.model_fields) - {"docker", "guaranteed"}),
            docker=entry.docker is not None,
            min=runners[entry.label].min,
            max=entry.at_most,
            guaranteed=held[entry.label].guaranteed if entry.label in held else None,
            burst=held[entry.label].burst if entry.label in held else None,
            cost_per_hour=prices.get(entry.label),
        )
        for entry in labels.catalogue([stack], capacity=False).labels
    ]


def _secrets(stack: Stack, key: str) -> dict[str, str]:
    """Return digests of the stored secrets. Setting a secret again changes its ciphertext, even for the same value."""
    stored = {name: _stored(stack.file, name) for name in (*stack.settings.secret_keys(), *stack.file.foreign_secrets)}
    return {name: _digest(key, value) for name, value in stored.items() if value is not None}


def _stored(file: StackFile, name: str) -> Any:
    """Return a secret as the stack file stores it; None if it has none."""
    ciphertext = file.written((name, "secure"))
    return file.written((name,)) if ciphertext is None else {"secure": ciphertext}


def _plan(stack: Stack, secrets: Mapping[str, str], *, unknown_outputs: bool = True) -> Plan:
    """Return the plan with a different stand-in for each secret, so that a changed secret shows wherever it is used."""
    from gpufleet_stacks.settings.problems import NAMESPACE
    from gpufleet_tools.plan.recorder import record

    values = {f"{NAMESPACE}:{key}": value for key, value in stack.file.values.items()}
    stand_ins = {f"{NAMESPACE}:{key}": secrets.get(key, "not set") for key in stack.settings.secret_keys()}
    stand_ins |= {key: secrets.get(key, "not set") for key in stack.file.foreign_secrets}
    return record(
        stack.root, stack.name, {**stack.file.foreign, **values}, secrets=stand_ins, unknown_outputs=unknown_outputs
    )


def _resources(stack: Stack, plan: Plan, secrets: Mapping[str, str], key: str) -> list[EvaluatedResource]:
    """Return the registrations. Values that depend on outputs come from a plan whose outputs are inputs: most resources
    exist already and keep their outputs, and consequences of a change show too."""
    try:
        known = _plan(stack, secrets, unknown_outputs=False)
        inputs = {each.urn: each.inputs for each in known.resources}
    except Exception:
        # Not every output is an input, and the program may not support that. The values stay unknown, as in a preview.
        inputs = {}
    return [_resource(each, filled(each.inputs, inputs.get(each.urn)), key) for each in plan.resources]


def filled(value: Any, known: Any) -> Any:
    """Return the value with its unknown parts taken from `known`, if it has them."""
    from gpufleet_tools.plan.plan import UNKNOWN

    if value is UNKNOWN or value == repr(UNKNOWN):
        return value if known is None else known
    if isinstance(value, Mapping):
        parts = known if isinstance(known, Mapping) else {}
        return {name: filled(item, parts.get(name)) for name, item in value.items()}
    if isinstance(value, list):
        items = known if isinstance(known, list) and len(known) == len(value) else [None] * len(value)
        return [filled(*pair) for pair in zip(value, items, strict=True)]
    return value


def _resource(resource: Resource, inputs: Any, key: str) -> EvaluatedResource:
    return EvaluatedResource(
        urn=resource.urn,
        type=resource.type,
        name=resource.name,
        parent=resource.parent,
        kind=resource.kind,
        provider=resource.provider,
        opaque=resource.opaque is not None,
        inputs=_plain(inputs, key),
        options=dict(resource.options),
    )


def _plain(value: Any, key: str) -> Any:
    from gpufleet_tools.plan.plan import Hidden, Unknown, revealed

    if isinstance(value, Hidden):
        return f"{HIDDEN}{_digest(key, revealed(value))}>"
    if isinstance(value, Unknown):
        return repr(value)
    if isinstance(value, Mapping):
        return {name: _plain(_without_stand_ins(name, item), key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    return value


def _without_stand_ins(name: Any, value: Any) -> Any:
    """Hide a computed revision of credentials: it is computed from stand-ins here, so only its change means
    something."""
    from gpufleet_tools.plan.plan import Hidden

    # Identified by its name: another revision's code may have no constant for it.
    computed = name == "gpufleet.dev/credentials-revision" and re.fullmatch(r"[0-9a-f]{16}", str(value))
    return Hidden(value) if computed else value


def _digest(key: str, value: Any) -> str:
    return hmac.new(key.encode(), repr(value).encode(), hashlib.sha256).hexdigest()[:16]


def refuse_other_code(root: pathlib.Path) -> None:
    """Raise SystemExit if this file belongs to the checkout `root` but a package that it imports does not. The import
    of a package that the checkout lacks would find an installed one of another revision."""
    if not pathlib.Path(__file__).resolve().is_relative_to(root):
        return
    for package in ("gpufleet", "gpufleet_stacks", "gpufleet_tools"):
        file = importlib.import_module(package).__file__
        if file is None or not pathlib.Path(file).resolve().is_relative_to(root):
            raise SystemExit(f"the revision has no package {package}")


def _main(out: str, key: str, day: str, *selected: str) -> None:
    from gpufleet_tools import short_process

    root = pathlib.Path.cwd().resolve()
    refuse_other_code(root)
    short_process.begin()
    evaluated = evaluation(root, key, datetime.date.fromisoformat(day), selected or None)
    pathlib.Path(out).write_text(evaluated.model_dump_json())
    short_process.end(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
