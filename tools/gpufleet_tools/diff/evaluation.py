"""Evaluation of one revision: its stacks with their labels, findings and resources.

`gpufleet diff` runs this file as a program in a checkout of the revision, with the revision's own code where it has
some: `python -P evaluation.py OUT KEY DAY [STACK...]`. It writes an `Evaluation` to OUT. Fields that are added later
have a default, so that another revision's evaluation can be read."""

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
    from gpufleet_tools.capacity.cost import StackCost
    from gpufleet_tools.capacity.stack_capacity import Pool, StackCapacity
    from gpufleet_tools.plan.plan import Plan, Resource
    from gpufleet_tools.plan.stack import Stack

HIDDEN = "<secret:"
"""How a secret leaf begins; a keyed digest follows, which tells two secrets apart and means nothing elsewhere."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class EvaluatedResource(_Part):
    """One registration."""

    urn: str
    """Its identity."""
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
    """Whether what it makes is known only once its provider runs."""
    inputs: dict[str, Any]
    """Inputs; a secret leaf is a digest, and never the secret."""
    options: dict[str, Any]
    """Resource options that differ from their defaults."""


class EvaluatedLabel(_Part):
    """What one label of one stack gives its users."""

    label: str
    """What `runs-on` says."""
    stack: str
    """Stack that serves it."""
    cluster: str
    """Cluster that its jobs run on."""
    config_url: str
    """Organisation or repository whose jobs it takes."""
    runner_group: str | None
    """GitHub runner group; None is the default group."""
    gpus: int
    """GPUs of one runner."""
    accelerator: str | None
    """What those are."""
    cpu: str
    """Cores of one runner, a Kubernetes quantity."""
    memory: str
    """Memory of one runner, a Kubernetes quantity."""
    docker: bool
    """Whether jobs can use Docker."""
    least: int
    """Runners kept ready."""
    most: int
    """Jobs that run at once."""
    until: datetime.date | None
    """Last day of a deprecated label."""
    use: str | None
    """What to use instead."""
    guaranteed: int | None = None
    """Jobs that find room whatever the other labels run; None where that is not reckoned."""
    burst: int | None = None
    """Jobs that run when no other label has any."""
    runner_version: str | None = None
    """Version of GitHub's runner; None where it is not known."""
    no_jobs_from: datetime.date | None = None
    """First day on which GitHub gives that version no jobs; None where that is not known."""
    cost_per_hour: float | None = None
    """US dollars an hour for nodes that are bought, with as many jobs as its pool's limits admit and nothing else; None
    where nodes are not bought, or it is not known."""


class EvaluatedPool(_Part):
    """A node pool of a stack."""

    nodes: int
    """Nodes that it has."""
    gpus: int
    """GPUs of all of them."""
    bought: dict[str, str] = {}
    """Where its nodes are bought when jobs wait: what, within which limits, and how many jobs are on one GPU. Nodes and
    GPUs are 0 then."""


class EvaluatedCost(_Part):
    """What a stack costs an hour when every label runs its max."""

    per_hour: float | None
    """US dollars; None where no type has a price that holds the jobs of some label."""
    waiting: int
    """Jobs that wait then, since limits admit no more nodes."""
    basis: str
    """What kind of prices these are, and of which day."""


class EvaluatedFinding(_Part):
    """An open finding of a stack."""

    name: str
    """Kind of finding."""
    severity: Literal["error", "warning", "note"]
    """How bad it is."""
    path: str
    """Setting that it arises from."""
    message: str
    """What is so, and what to do."""


class EvaluatedStack(_Part):
    """One stack."""

    # Older revisions write `faults`.
    problems: list[str] = Field(default=[], validation_alias=AliasChoices("problems", "faults"))
    """Why it cannot be evaluated, one line each; nothing else is known then."""
    labels: list[EvaluatedLabel] = []
    """Its labels."""
    settings: list[tuple[tuple[str, ...], str]] | None = None
    """Path and value of every setting; None of a stack that was not asked for, or that does not say."""
    secrets: dict[str, str] = {}
    """A digest of what is stored under each secret key, encrypted as it is."""
    resources: list[EvaluatedResource] = []
    """Registrations, sorted by URN; none of a stack that was not asked for."""
    findings: list[EvaluatedFinding] = []
    """Open findings, in the order of the file."""
    pools: dict[str, EvaluatedPool] = {}
    """Its node pools."""
    cost: EvaluatedCost | None = None
    """What it costs; None where no nodes are bought, or that is not reckoned."""


class Evaluation(_Part):
    """What a revision says."""

    form: Literal[1] = 1
    """Version of this form."""
    outputs: Literal["unknown", "inputs"] = "unknown"
    """What the outputs of resources are taken to be where others hang on them: unknown, as before anything is made, or
    their inputs, where those have them."""
    stacks: dict[str, EvaluatedStack]
    """Every stack whose file is there, by name."""


def evaluation(root: pathlib.Path, key: str, day: datetime.date, asked: Collection[str] | None) -> Evaluation:
    """What the checkout in `root` says of its stacks on a day; `asked` have their resources, all when it is None."""
    from gpufleet_tools.plan import stack

    names = stack.names(root)
    wanted = names if asked is None else asked
    stacks = {name: _stack(root, name, key, day, name in wanted) for name in names}
    return Evaluation(outputs="inputs", stacks=stacks)


def _stack(root: pathlib.Path, name: str, key: str, day: datetime.date, asked: bool) -> EvaluatedStack:
    import pulumi

    from gpufleet_stacks.settings.problems import InvalidSettings
    from gpufleet_tools.plan import stack
    from gpufleet_tools.plan.recorder import RecordingError

    try:
        return _evaluated(stack.read(root, name), key, day, asked)
    except (InvalidSettings, pulumi.RunError, RecordingError) as refused:
        return EvaluatedStack(problems=str(refused).splitlines())
    except Exception as problem:
        # The program is another revision's, and may fail in any way: that is something to say of it, not of this one.
        from gpufleet_stacks.settings.secrets import redacted

        last = traceback.extract_tb(problem.__traceback__)[-1]
        said = " ".join(traceback.format_exception_only(problem)[-1].split())
        where = f"Pulumi.{name}.yaml: {pathlib.Path(last.filename).name}:{last.lineno}"
        return EvaluatedStack(problems=[redacted(f"{where}: {said}".replace(f"{root}/", ""))])


def _evaluated(stack: Stack, key: str, day: datetime.date, asked: bool) -> EvaluatedStack:
    secrets = _secrets(stack, key)
    if not asked:
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
        return EvaluatedPool(nodes=0, gpus=0, bought=pool.bought)
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
            least=runners[entry.label].min,
            most=entry.at_most,
            guaranteed=held[entry.label].guaranteed if entry.label in held else None,
            burst=held[entry.label].burst if entry.label in held else None,
            cost_per_hour=prices.get(entry.label),
        )
        for entry in labels.catalogue([stack], capacity=False).labels
    ]


def _secrets(stack: Stack, key: str) -> dict[str, str]:
    """Whoever sets a secret anew encrypts it anew, so that its text in the file is another, whatever it holds."""
    import yaml

    from gpufleet_stacks.settings.problems import NAMESPACE

    config = yaml.safe_load(stack.file.path.read_text())["config"]
    stored = {name: config.get(f"{NAMESPACE}:{name}") for name in stack.settings.secret_keys()}
    # A secret of the adopter's own program goes by its whole key.
    stored |= {name: config.get(name) for name in stack.file.foreign_secrets}
    return {name: _digest(key, text) for name, text in stored.items() if text is not None}


def _plan(stack: Stack, secrets: Mapping[str, str], *, unknown_outputs: bool = True) -> Plan:
    """The plan, with a stand-in of its own for each secret: one that is set anew shows wherever it ends up."""
    from gpufleet_stacks.settings.problems import NAMESPACE
    from gpufleet_tools.plan.recorder import record

    values = {f"{NAMESPACE}:{key}": value for key, value in stack.file.values.items()}
    stand_ins = {f"{NAMESPACE}:{key}": secrets.get(key, "not set") for key in stack.settings.secret_keys()}
    stand_ins |= {key: secrets.get(key, "not set") for key in stack.file.foreign_secrets}
    return record(
        stack.root, stack.name, {**stack.file.foreign, **values}, secrets=stand_ins, unknown_outputs=unknown_outputs
    )


def _resources(stack: Stack, plan: Plan, secrets: Mapping[str, str], key: str) -> list[EvaluatedResource]:
    """Registrations; what hangs on outputs is taken from a plan whose outputs are inputs. Most of what is compared has
    been made already, so that its outputs stay as they are, and what follows from a change shows too."""
    try:
        made = _plan(stack, secrets, unknown_outputs=False)
        inputs = {each.urn: each.inputs for each in made.resources}
    except Exception:
        # Not every output is an input, and a program need not bear that. Unknown is what it is in a preview.
        inputs = {}
    return [_resource(each, filled(each.inputs, inputs.get(each.urn)), key) for each in plan.resources]


def filled(value: Any, made: Any) -> Any:
    """The value with what is unknown of it, be it written or not, taken from another where that has it."""
    from gpufleet_tools.plan.plan import UNKNOWN

    if value is UNKNOWN or value == repr(UNKNOWN):
        return value if made is None else made
    if isinstance(value, Mapping):
        there = made if isinstance(made, Mapping) else {}
        return {name: filled(item, there.get(name)) for name, item in value.items()}
    if isinstance(value, list):
        items = made if isinstance(made, list) and len(made) == len(value) else [None] * len(value)
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
        return {name: _plain(_of_stand_ins(name, item), key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    return value


def _of_stand_ins(name: Any, value: Any) -> Any:
    """A revision of credentials that the program computes is computed from stand-ins here: another one is all it
    says."""
    from gpufleet_tools.plan.plan import Hidden

    # By its name, since another revision's code may have no constant for it.
    computed = name == "gpufleet.dev/credentials-revision" and re.fullmatch(r"[0-9a-f]{16}", str(value))
    return Hidden(value) if computed else value


def _digest(key: str, value: Any) -> str:
    return hmac.new(key.encode(), repr(value).encode(), hashlib.sha256).hexdigest()[:16]


def refuse_other_code(root: pathlib.Path) -> None:
    """End the process where this file is of the checkout `root` and a package that it imports is not: a package that
    is missing in the checkout would be that of another one, which is installed."""
    if not pathlib.Path(__file__).resolve().is_relative_to(root):
        return
    for package in ("gpufleet", "gpufleet_stacks", "gpufleet_tools"):
        file = importlib.import_module(package).__file__
        if file is None or not pathlib.Path(file).resolve().is_relative_to(root):
            raise SystemExit(f"it has no package {package} of its own")


def _main(out: str, key: str, day: str, *asked: str) -> None:
    from gpufleet_tools import short_process

    root = pathlib.Path.cwd().resolve()
    refuse_other_code(root)
    short_process.begin()
    said = evaluation(root, key, datetime.date.fromisoformat(day), asked or None)
    pathlib.Path(out).write_text(said.model_dump_json())
    short_process.end(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
