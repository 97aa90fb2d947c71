"""What a pull request changes: for the people who use the runners, and in each stack's resources."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from pydantic import Field

from fleet.diff_labels import LabelChange, Refusal, broken_promises, label_changes
from fleet.diff_machines import kubespray_refusals, runs
from fleet.diff_resources import ResourceChange, resource_changes
from fleet.evaluation import (
    EvaluatedCost,
    EvaluatedFinding,
    EvaluatedLabel,
    EvaluatedPool,
    EvaluatedResource,
    EvaluatedStack,
    Evaluation,
    filled,
)
from fleet.instance_prices import money
from fleet.plan import RELEASE
from fleet.revisions import Compared, Revision
from stacks.documented import Documented


class NewFinding(Documented):
    """A finding that the base does not have."""

    name: str
    """Kind of finding."""
    severity: Literal["error", "warning", "note"]
    """How bad it is."""
    path: str
    """Setting that it arises from."""
    message: str
    """What is so, and what to do."""


class CostChange(Documented):
    """What a stack costs an hour when every label runs its max, where that is another than before."""

    before: float | None
    """US dollars for nodes that are bought; None where there are none, or that is not known."""
    after: float | None
    """US dollars for nodes that will be bought."""
    said: str
    """Both, for people."""
    basis: str
    """What kind of prices these are, of which day, and what they leave out."""


class StackDifference(Documented):
    """What changes in one stack."""

    stack: str
    """Name of the stack."""
    state: Literal["there", "new", "gone"]
    """Whether the base and the head have it; `new` and `gone`: only one of them has."""
    resources: list[ResourceChange]
    """Resources that change, the worst first."""
    secrets: list[str]
    """Secret keys that are set for the first time, set anew or removed."""
    pools: list[str]
    """Node pools that come, go, grow, shrink or buy something else in a stack that stays."""
    cost: CostChange | None
    """What changes in the cost at max; None where nothing does, or no nodes are bought."""
    runs: list[str]
    """What `pulumi up` runs on machines of a stack that stays, in that order."""
    findings: list[NewFinding]
    """Findings that the base does not have."""


class Difference(Documented):
    """What changes between two revisions."""

    schema_version: Literal[1] = Field(default=1)
    """Version of this form."""
    base: str
    """The revision that is compared with."""
    head: str
    """The revision that is proposed."""
    notes: list[str]
    """What to know about the comparison itself."""
    unsaid: list[str]
    """Why nothing can be said of some stack, one line each; empty when all is said."""
    invalid: list[str]
    """Those of them that are mistakes of the head: it is refused as it is, whatever else it does."""
    refusals: list[Refusal]
    """What should not be merged as it is."""
    labels: list[LabelChange]
    """What changes for users, sorted by label."""
    stacks: list[StackDifference]
    """What changes in each stack, sorted by name."""

    @property
    def refused(self) -> list[Refusal]:
        """Refusals that nobody has allowed."""
        return [refusal for refusal in self.refusals if not refusal.allowed]

    @property
    def changes(self) -> bool:
        """Whether anything is not as before."""
        return bool(self.labels) or any(
            each.state != "there" or each.resources or each.secrets or each.pools or each.cost for each in self.stacks
        )


def difference(
    compared: Compared, stacks: Sequence[str], day: datetime.date, allowed: Collection[str] = ()
) -> Difference:
    """What changes in the named stacks, or in all; `allowed` names refusals that do not count."""
    before, after = _alike(compared.before, compared.after), _alike(compared.after, compared.before)
    there = sorted(before.stacks.keys() | after.stacks.keys())
    unsaid = [_unknown(name, compared, there) for name in stacks if name not in there]
    names = [name for name in (sorted(set(stacks)) or there) if name in there]
    unsaid += _faults(compared.base, before, names)
    invalid = _faults(compared.head, after, names)
    sound = [name for name in names if not _faulty(name, before, after)]
    promises = _labels(before, there), _labels(after, there)
    changes = label_changes(*promises, sound)
    differences = [_stack(name, before.stacks.get(name), after.stacks.get(name)) for name in sound]
    refusals = [*broken_promises(_labels(before, sound), _labels(after, sound), changes, day)]
    for each in differences:
        refusals += _refusals(each, before.stacks.get(each.stack), after.stacks.get(each.stack))
    return Difference(
        base=str(compared.base),
        head=str(compared.head),
        notes=[*compared.notes, *_notes(differences, names, before, after)],
        unsaid=[*unsaid, *invalid],
        invalid=invalid,
        refusals=[
            Refusal(name=name, stack=stack, message=message, allowed=name in allowed)
            for name, stack, message in refusals
        ],
        labels=changes,
        stacks=differences,
    )


def _unknown(name: str, compared: Compared, there: Sequence[str]) -> str:
    return f"neither {compared.base} nor {compared.head} has a stack '{name}'; there are: {', '.join(there) or 'none'}"


def _alike(side: Evaluation, other: Evaluation) -> Evaluation:
    """The side with what it does not know taken from the other, where only that one says what hangs on outputs."""
    if side.outputs == other.outputs:
        return side
    inputs = {each.urn: each.inputs for stack in other.stacks.values() for each in stack.resources}
    stacks = {
        name: stack.model_copy(
            update={
                "resources": [
                    each.model_copy(update={"inputs": filled(each.inputs, inputs.get(each.urn))})
                    for each in stack.resources
                ]
            }
        )
        for name, stack in side.stacks.items()
    }
    return side.model_copy(update={"stacks": stacks})


def _faults(revision: Revision, side: Evaluation, names: Collection[str]) -> list[str]:
    return [f"{revision}: {fault}" for name in names if name in side.stacks for fault in side.stacks[name].faults]


def _faulty(name: str, *sides: Evaluation) -> bool:
    return any(side.stacks[name].faults for side in sides if name in side.stacks)


def _labels(side: Evaluation, names: Collection[str]) -> list[EvaluatedLabel]:
    return [label for name, stack in side.stacks.items() if name in names for label in stack.labels]


def _notes(
    differences: Sequence[StackDifference],
    names: Sequence[str],
    before: Evaluation,
    after: Evaluation,
) -> Iterator[str]:
    for each in differences:
        if each.state == "gone":
            yield (
                f"stack {each.stack} is gone from the head, and with its file nothing deletes what it has made:"
                " pulumi destroy it from the base first"
            )
        if any(change.action == "replaced" and change.type.startswith("aws:") for change in each.resources):
            yield (
                f"stack {each.stack}: what takes the id of a replaced AWS resource is replaced or updated after it, and"
                " is not counted here: ids are known to the engine only"
            )
    if before.outputs != after.outputs:
        yield "one of the revisions does not say what hangs on outputs of resources: that is not compared"
    mended = [name for name in names if _faulty(name, before) and name in after.stacks and not _faulty(name, after)]
    if mended:
        yield (
            f"the base is at fault and the head is not: what changes in {', '.join(mended)} can only be said from a"
            " base that is valid; other stacks can be compared by naming them"
        )
    others = sorted((before.stacks.keys() | after.stacks.keys()) - set(names))
    invalid = [name for name in others if _faulty(name, before, after)]
    if invalid:
        yield f"the labels of {', '.join(invalid)} are not all known: a revision of it is invalid"


def _stack(name: str, before: EvaluatedStack | None, after: EvaluatedStack | None) -> StackDifference:
    old, new = before or EvaluatedStack(), after or EvaluatedStack()
    known = {(finding.name, finding.path) for finding in old.findings}
    return StackDifference(
        stack=name,
        state="new" if before is None else "gone" if after is None else "there",
        resources=resource_changes(old.resources, new.resources),
        secrets=_secrets(old, new),
        pools=_pools(old, new) if before and after else [],
        cost=_cost(before, after),
        runs=runs(old.resources, new.resources) if before and after else [],
        findings=[_finding(each) for each in new.findings if (each.name, each.path) not in known],
    )


def _finding(each: EvaluatedFinding) -> NewFinding:
    return NewFinding(name=each.name, severity=each.severity, path=each.path, message=each.message)


def _secrets(old: EvaluatedStack, new: EvaluatedStack) -> list[str]:
    said = {(True, True): "set anew", (False, True): "set", (True, False): "removed"}
    return [
        f"{key} is {said[key in old.secrets, key in new.secrets]}"
        for key in sorted(old.secrets.keys() | new.secrets.keys())
        if old.secrets.get(key) != new.secrets.get(key)
    ]


def _pools(old: EvaluatedStack, new: EvaluatedStack) -> list[str]:
    names = sorted(old.pools.keys() | new.pools.keys())
    changes = ((name, _pool_change(old.pools.get(name), new.pools.get(name))) for name in names)
    return [f"pool {name}: {change}" for name, change in changes if change]


def _pool_change(before: EvaluatedPool | None, after: EvaluatedPool | None) -> str:
    """What is another than before; of bought nodes only that, since their limits are many."""
    if before and after and before.bought and after.bought:
        keys = [key for key in {**before.bought, **after.bought} if before.bought.get(key) != after.bought.get(key)]
        return "; ".join(f"{key} {before.bought.get(key, 'none')} → {after.bought.get(key, 'none')}" for key in keys)
    bought = (before or after or EvaluatedPool(nodes=0, gpus=0)).bought
    if bought and not (before and after):
        return f"{'gone' if before else 'new'}, {'; '.join(f'{key} {value}' for key, value in bought.items())}"
    said = _pool(before), _pool(after)
    return "" if said[0] == said[1] else " → ".join(said)


def _pool(pool: EvaluatedPool | None) -> str:
    return f"{pool.nodes} node{'s' * (pool.nodes != 1)} with {pool.gpus} GPUs" if pool else "none"


def _cost(before: EvaluatedStack | None, after: EvaluatedStack | None) -> CostChange | None:
    """A revision that does not reckon it says nothing of it, and then there is nothing to compare."""
    old, new = (side.cost if side else None for side in (before, after))
    if (before and after and not (old and new)) or (said := _amount(old)) == _amount(new):
        return None
    bases = dict.fromkeys(f"{side.basis}, spot not reckoned" for side in (old, new) if side)
    return CostChange(
        before=old.per_hour if old else None,
        after=new.per_hour if new else None,
        said=f"{said} → {_amount(new)}" if before and after else _amount(new) if after else f"{said} → none",
        basis=" → ".join(bases),
    )


def _amount(cost: EvaluatedCost | None) -> str:
    if cost is None:
        return "none"
    waiting = f" with {cost.waiting} job{'s' * (cost.waiting != 1)} waiting" if cost.waiting else ""
    return f"{money(cost.per_hour)}{waiting}"


# -- refusals beside those of labels ----------------------------------------------------------------------------------

_NOT_UNSEEN = frozenset({"open-endpoint"})
"""Findings that nobody should merge in passing, though they may be meant: they are no errors."""

_CONTROLLER, _SCALE_SET = "gha-runner-scale-set-controller", "gha-runner-scale-set"


def _refusals(
    each: StackDifference, before: EvaluatedStack | None, after: EvaluatedStack | None
) -> Iterator[tuple[str, str, str]]:
    for change in each.resources:
        if change.moved and change.action == "deleted":
            yield "moved-without-alias", each.stack, f"{change.title}: {change.reasons[0]}; give it an alias"
        if change.protected:
            yield (
                "protected",
                each.stack,
                f"{change.title} is protected and would be {change.action}: pulumi up refuses",
            )
        if change.action == "refused":
            yield "immutable", each.stack, f"{change.title}: {', '.join(change.reasons)}; give the new one another name"
    for finding in each.findings:
        if finding.severity == "error" or finding.name in _NOT_UNSEEN:
            yield finding.name, each.stack, f"{finding.path}: {finding.message}"
    old, new = before or EvaluatedStack(), after or EvaluatedStack()
    yield from _controllers(each.stack, old, new)
    yield from (("kubespray", each.stack, refusal) for refusal in kubespray_refusals(old.resources, new.resources))


def _controllers(stack: str, old: EvaluatedStack, new: EvaluatedStack) -> Iterator[tuple[str, str, str]]:
    """A controller deletes scale sets of another minor version than its own, with the jobs that they run."""
    versions = {_version(each) for each in old.resources if _chart(each) == _CONTROLLER}
    wanted = {_version(each) for each in new.resources if _chart(each) == _CONTROLLER}
    kept = {each.urn for each in old.resources if _chart(each) == _SCALE_SET}
    kept &= {each.urn for each in new.resources if _chart(each) == _SCALE_SET}
    minors = [{version.rpartition(".")[0] for version in side} for side in (versions, wanted)]
    if kept and all(minors) and minors[0] != minors[1]:
        many = f"{len(kept)} scale set{'s' * (len(kept) > 1)}"
        message = (
            f"ARC goes from {', '.join(sorted(versions))} to {', '.join(sorted(wanted))} with {many} in place, and a"
            " controller deletes scale sets of another minor version: remove the runners first, then change the"
            " version, then put them back"
        )
        yield "arc-minor-version", stack, message


def _version(each: EvaluatedResource) -> str:
    return str(each.inputs.get("version", ""))


def _chart(each: EvaluatedResource) -> str | None:
    """Name of the chart of a Helm release, wherever it comes from."""
    if each.type != RELEASE:
        return None
    name = str(each.inputs.get("chart", "")).split("/")[-1]
    return name.removesuffix(".tgz").removesuffix(f"-{_version(each)}")
