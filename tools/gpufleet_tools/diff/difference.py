"""What a pull request changes: for the people who use the runners, and in each stack's resources."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from pydantic import Field

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.secrets import redacted
from gpufleet_tools.capacity.instance_prices import money
from gpufleet_tools.diff.environment.jobs import environments
from gpufleet_tools.diff.environment.listeners import listener_restarts
from gpufleet_tools.diff.environment.pools import pool_changes
from gpufleet_tools.diff.evaluation import (
    EvaluatedCost,
    EvaluatedFinding,
    EvaluatedLabel,
    EvaluatedPool,
    EvaluatedStack,
    Evaluation,
    filled,
)
from gpufleet_tools.diff.labels import LabelChange, Refusal, broken_promises, label_changes
from gpufleet_tools.diff.machines import runs
from gpufleet_tools.diff.refusals import NewFinding, cluster_moved, refusals
from gpufleet_tools.diff.resources import ResourceChange, resource_changes
from gpufleet_tools.diff.revisions import Compared, Revision
from gpufleet_tools.diff.settings.changes import SettingChange, setting_changes


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
    moved: str
    """Region and account of its cluster, before and after, where they change; empty otherwise. Its resources are not
    listed then: all of them are in another place."""
    resources: list[ResourceChange]
    """Resources that change, the worst first."""
    secrets: list[str]
    """Secret keys that are set for the first time, set anew or removed."""
    listeners: list[str] = []
    """Labels whose listener restarts and whose runners stay, in a stack that stays."""
    settings: list[SettingChange]
    """Settings of a stack that stays, whose values change."""
    pools: list[str]
    """Node pools that come, go, grow, shrink or buy something else in a stack that stays."""
    cost: CostChange | None
    """What changes in the cost at max; None where nothing does, or no nodes are bought."""
    runs: list[str]
    """What `pulumi up` runs on machines of a stack that stays, in that order."""
    findings: list[NewFinding]
    """Findings that the base does not have."""


_NAMES = frozenset({"stack", "state"})
"""Fields of a stack's difference that are no change by themselves."""


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
            each.state != "there"
            or any(getattr(each, field) for field in StackDifference.model_fields if field not in _NAMES)
            for each in self.stacks
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
    differences = [_stack(name, before.stacks.get(name), after.stacks.get(name)) for name in sound]
    changes = label_changes(*promises, sound, _environments(before, after, sound), _settings_of_labels(differences))
    found = [*broken_promises(_labels(before, sound), _labels(after, sound), changes, day)]
    for each in differences:
        sides = before.stacks.get(each.stack), after.stacks.get(each.stack)
        found += [
            (name, each.stack, message) for name, message in refusals(each.moved, each.resources, each.findings, *sides)
        ]
    return Difference(
        base=str(compared.base),
        head=str(compared.head),
        notes=[*compared.notes, *_notes(differences, names, before, after)],
        unsaid=[*unsaid, *invalid],
        invalid=invalid,
        refusals=[
            Refusal(name=name, stack=stack, message=message, allowed=name in allowed) for name, stack, message in found
        ],
        labels=changes,
        stacks=differences,
    )


def not_compared(revisions: str, reason: str) -> Difference:
    """Return the difference of a range of which nothing can be said; it is reported as any other."""
    base, _, head = revisions.partition("..")
    return Difference(
        base=base,
        head=head.lstrip(".") or ("HEAD" if ".." in revisions else "the working tree"),
        notes=[],
        unsaid=[redacted(line) for line in reason.splitlines()],
        invalid=[],
        refusals=[],
        labels=[],
        stacks=[],
    )


def _environments(
    before: Evaluation, after: Evaluation, names: Collection[str]
) -> dict[tuple[str, str], list[tuple[str, str, str]]]:
    """Return what changes in the environment of jobs, by stack and label."""
    return {
        (name, label): changes
        for name in names
        if name in before.stacks and name in after.stacks
        for label, changes in environments(before.stacks[name].resources, after.stacks[name].resources).items()
    }


def _settings_of_labels(stacks: Iterable[StackDifference]) -> dict[tuple[str, str], list[tuple[str, str, str]]]:
    """Return the settings whose change users notice, by stack and label."""
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for stack in stacks:
        for change in stack.settings:
            for label in change.labels:
                found.setdefault((stack.stack, label), []).append((change.words, change.before, change.after))
    return found


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
    return [f"{revision}: {problem}" for name in names if name in side.stacks for problem in side.stacks[name].problems]


def _faulty(name: str, *sides: Evaluation) -> bool:
    return any(side.stacks[name].problems for side in sides if name in side.stacks)


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
    sides = [
        (before.stacks[name], after.stacks[name]) for name in names if name in before.stacks and name in after.stacks
    ]
    if any(bool(old.settings) != bool(new.settings) and not (old.problems or new.problems) for old, new in sides):
        yield "one of the revisions does not say its settings: only what follows from them is compared"
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
    moved = cluster_moved(old.resources, new.resources)
    stays = before is not None and after is not None and not moved
    return StackDifference(
        stack=name,
        state="new" if before is None else "gone" if after is None else "there",
        moved=moved,
        resources=[] if moved else resource_changes(old.resources, new.resources),
        secrets=_secrets(old, new),
        listeners=listener_restarts(old.resources, new.resources) if stays else [],
        settings=setting_changes(dict(old.settings), dict(new.settings)) if old.settings and new.settings else [],
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
    settings = pool_changes(old.resources, new.resources)
    lines = []
    for name in sorted(old.pools.keys() | new.pools.keys() | settings.keys()):
        capacity = _pool_change(old.pools.get(name), new.pools.get(name))
        lines.append(f"pool {name}: {'; '.join(filter(None, (capacity, settings.get(name))))}")
    return [line for line in lines if not line.endswith(": ")]


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
    bases = dict.fromkeys(f"{side.basis}; spot is usually lower" for side in (old, new) if side)
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
