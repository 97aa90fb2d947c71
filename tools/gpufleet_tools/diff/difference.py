"""Difference between two revisions: changes for users of the runners, and changes of each stack's resources."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from pydantic import Field

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.secrets import redacted
from gpufleet_tools.capacity.instance_prices import money
from gpufleet_tools.diff.environment.arc_versions import upgrade_steps
from gpufleet_tools.diff.environment.jobs import environments
from gpufleet_tools.diff.environment.listeners import listener_restarts
from gpufleet_tools.diff.environment.pools import pool_changes
from gpufleet_tools.diff.environment.simultaneous_upgrades import simultaneous_upgrades
from gpufleet_tools.diff.evaluation import (
    EvaluatedCost,
    EvaluatedFinding,
    EvaluatedLabel,
    EvaluatedPool,
    EvaluatedStack,
    Evaluation,
    filled,
)
from gpufleet_tools.diff.labels import LabelChange, RefusedChange, contract_violations, label_changes
from gpufleet_tools.diff.machines import runs
from gpufleet_tools.diff.refused_changes import NewFinding, cluster_moved, refused_changes, unprotected_clusters
from gpufleet_tools.diff.resources import ResourceChange, resource_changes
from gpufleet_tools.diff.revisions import Compared, Revision
from gpufleet_tools.diff.settings.changes import SettingChange, setting_changes


class CostChange(Documented):
    """Change of a stack's cost per hour with every label at its max."""

    before: float | None
    """US dollars for provisioned nodes; None if there are none, or prices are unknown."""
    after: float | None
    """US dollars for provisioned nodes after the change."""
    text: str
    """Both amounts as text."""
    basis: str
    """Kind and date of the prices, and costs that are not included."""


class StackDifference(Documented):
    """Changes of one stack."""

    stack: str
    """Name of the stack."""
    state: Literal["existing", "new", "removed"]
    """`existing`: both revisions have the stack. `new`: only the head has it. `removed`: only the base has it."""
    moved: str
    """Region and account of the cluster before and after, if they change; empty otherwise. The resources of a moved
    cluster are not listed: all of them change."""
    resources: list[ResourceChange]
    """Resources that change, most disruptive first."""
    secrets: list[str]
    """Secret keys that are set for the first time, changed or removed."""
    listeners: list[str] = []
    """Labels of an existing stack whose listener restarts while their runners stay."""
    upgrade: list[str] = []
    """Steps in which `pulumi up` upgrades ARC in an existing stack, in order."""
    settings: list[SettingChange]
    """Settings of an existing stack whose values change."""
    pools: list[str]
    """Changes of an existing stack's node pools."""
    cost: CostChange | None
    """Change of the cost at max; None if it stays the same, or no nodes are provisioned."""
    runs: list[str]
    """Runs on machines of an existing stack during `pulumi up`, in order."""
    findings: list[NewFinding]
    """Findings that the base does not have."""
    unprotected: list[str] = []
    """Clusters of the head that `pulumi destroy` would delete without being refused, each with its setting."""


_NO_CHANGES = frozenset({"stack", "state", "unprotected"})
"""Fields of a stack's difference that are not changes."""


class Difference(Documented):
    """Difference between two revisions."""

    schema_version: Literal[1] = Field(default=1)
    """Version of the schema."""
    base: str
    """Base revision."""
    head: str
    """Proposed revision."""
    notes: list[str]
    """Notes about the comparison itself."""
    errors: list[str]
    """Reasons why stacks could not be compared, one line each; empty if all were compared."""
    invalid: list[str]
    """Errors that are faults of the head, which is refused because of them."""
    refusals: list[RefusedChange]
    """Changes that should not be merged as they are."""
    labels: list[LabelChange]
    """Changes for users, sorted by label."""
    stacks: list[StackDifference]
    """Changes of each stack, sorted by name."""

    @property
    def refused(self) -> list[RefusedChange]:
        """Refused changes that are not allowed."""
        return [refusal for refusal in self.refusals if not refusal.allowed]

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return bool(self.labels) or any(
            each.state != "existing"
            or any(getattr(each, field) for field in StackDifference.model_fields if field not in _NO_CHANGES)
            for each in self.stacks
        )


def difference(
    compared: Compared, stacks: Sequence[str], day: datetime.date, allowed: Collection[str] = ()
) -> Difference:
    """Return the difference of the named stacks, or of all. `allowed` has the names of allowed refused changes."""
    before, after = _alike(compared.before, compared.after), _alike(compared.after, compared.before)
    known = sorted(before.stacks.keys() | after.stacks.keys())
    errors = [_unknown(name, compared, known) for name in stacks if name not in known]
    names = [name for name in (sorted(set(stacks)) or known) if name in known]
    errors += _problems(compared.base, before, names)
    invalid = _problems(compared.head, after, names)
    valid = [name for name in names if not _is_invalid(name, before, after)]
    labels = _labels(before, known), _labels(after, known)
    differences = [_stack(name, before.stacks.get(name), after.stacks.get(name)) for name in valid]
    changes = label_changes(*labels, valid, _environments(before, after, valid), _settings_of_labels(differences))
    found = [*contract_violations(_labels(before, valid), _labels(after, valid), changes, day)]
    found += simultaneous_upgrades(*labels, {each.stack: each.settings for each in differences})
    for each in differences:
        sides = before.stacks.get(each.stack), after.stacks.get(each.stack)
        found += [
            (name, each.stack, message)
            for name, message in refused_changes(each.moved, each.resources, each.findings, *sides)
        ]
    return Difference(
        base=str(compared.base),
        head=str(compared.head),
        notes=[*compared.notes, *_notes(differences, names, before, after)],
        errors=[*errors, *invalid],
        invalid=invalid,
        refusals=[
            RefusedChange(name=name, stack=stack, message=message, allowed=name in allowed)
            for name, stack, message in found
        ],
        labels=changes,
        stacks=differences,
    )


def not_compared(revisions: str, reason: str) -> Difference:
    """Return the difference of a range that could not be compared. It is reported as any other."""
    base, _, head = revisions.partition("..")
    return Difference(
        base=base,
        head=head.lstrip(".") or ("HEAD" if ".." in revisions else "the working tree"),
        notes=[],
        errors=[redacted(line) for line in reason.splitlines()],
        invalid=[],
        refusals=[],
        labels=[],
        stacks=[],
    )


def _environments(
    before: Evaluation, after: Evaluation, names: Collection[str]
) -> dict[tuple[str, str], list[tuple[str, str, str]]]:
    """Return the changes of jobs' environments, by stack and label."""
    return {
        (name, label): changes
        for name in names
        if name in before.stacks and name in after.stacks
        for label, changes in environments(before.stacks[name].resources, after.stacks[name].resources).items()
    }


def _settings_of_labels(stacks: Iterable[StackDifference]) -> dict[tuple[str, str], list[tuple[str, str, str]]]:
    """Return the changed settings that users notice, by stack and label."""
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for stack in stacks:
        for change in stack.settings:
            for label in change.labels:
                found.setdefault((stack.stack, label), []).append((change.words, change.before, change.after))
    return found


def _unknown(name: str, compared: Compared, known: Sequence[str]) -> str:
    stacks = f"their stacks: {', '.join(known) or 'none'}"
    return f"neither {compared.base} nor {compared.head} has a stack '{name}'; {stacks}"


def _alike(side: Evaluation, other: Evaluation) -> Evaluation:
    """Return the side with unknown values filled from the other, if only the other reports values that depend on
    outputs."""
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


def _problems(revision: Revision, side: Evaluation, names: Collection[str]) -> list[str]:
    return [f"{revision}: {problem}" for name in names if name in side.stacks for problem in side.stacks[name].problems]


def _is_invalid(name: str, *sides: Evaluation) -> bool:
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
        if each.state == "removed":
            yield (
                f"the head removes stack {each.stack}, but merging does not delete its resources; run pulumi destroy"
                " from the base first"
            )
        if any(change.action == "replaced" and change.type.startswith("aws:") for change in each.resources):
            yield (
                f"stack {each.stack}: resources that use the ID of a replaced AWS resource are replaced or updated too;"
                " they are not counted here, because only the engine knows IDs"
            )
    sides = [
        (before.stacks[name], after.stacks[name]) for name in names if name in before.stacks and name in after.stacks
    ]
    if any(bool(old.settings) != bool(new.settings) and not (old.problems or new.problems) for old, new in sides):
        yield "one of the revisions does not report settings: only their effects are compared"
    if before.outputs != after.outputs:
        yield "one of the revisions does not report values that depend on outputs: they are not compared"
    fixed = [
        name for name in names if _is_invalid(name, before) and name in after.stacks and not _is_invalid(name, after)
    ]
    if fixed:
        yield (
            f"{', '.join(fixed)}: the base is invalid and the head is valid, so the changes are unknown; use a valid"
            " base, or name the other stacks to compare only those"
        )
    others = sorted((before.stacks.keys() | after.stacks.keys()) - set(names))
    invalid = [name for name in others if _is_invalid(name, before, after)]
    if invalid:
        yield f"labels of {', '.join(invalid)} are incomplete: the stack is invalid in one of the revisions"


def _stack(name: str, before: EvaluatedStack | None, after: EvaluatedStack | None) -> StackDifference:
    old, new = before or EvaluatedStack(), after or EvaluatedStack()
    known = {(finding.name, finding.path) for finding in old.findings}
    moved = cluster_moved(old, new) if before and after else ""
    stays = before is not None and after is not None and not moved
    return StackDifference(
        stack=name,
        state="new" if before is None else "removed" if after is None else "existing",
        moved=moved,
        resources=[] if moved else resource_changes(old.resources, new.resources),
        secrets=_secrets(old, new),
        listeners=listener_restarts(old.resources, new.resources) if stays else [],
        upgrade=upgrade_steps(old.resources, new.resources) if stays else [],
        settings=setting_changes(dict(old.settings), dict(new.settings)) if old.settings and new.settings else [],
        pools=_pools(old, new) if before and after else [],
        cost=_cost(before, after),
        runs=runs(old.resources, new.resources) if before and after else [],
        findings=[_finding(each) for each in new.findings if (each.name, each.path) not in known],
        unprotected=unprotected_clusters(new.resources),
    )


def _finding(each: EvaluatedFinding) -> NewFinding:
    return NewFinding(name=each.name, severity=each.severity, path=each.path, message=each.message)


def _secrets(old: EvaluatedStack, new: EvaluatedStack) -> list[str]:
    changes = {(True, True): "changed", (False, True): "set", (True, False): "removed"}
    return [
        f"{key} is {changes[key in old.secrets, key in new.secrets]}"
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
    """Return the change of a pool's nodes; for pools whose nodes Karpenter provisions, the changes of their limits."""
    if before and after and before.provisioned and after.provisioned:
        old, new = before.provisioned, after.provisioned
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        return "; ".join(f"{key} {old.get(key, 'none')} → {new.get(key, 'none')}" for key in keys)
    provisioned = (before or after or EvaluatedPool(nodes=0, gpus=0)).provisioned
    if provisioned and not (before and after):
        values = "; ".join(f"{key} {value}" for key, value in provisioned.items())
        return f"{'removed' if before else 'new'}, {values}"
    texts = _pool(before), _pool(after)
    return "" if texts[0] == texts[1] else " → ".join(texts)


def _pool(pool: EvaluatedPool | None) -> str:
    return f"{pool.nodes} node{'s' * (pool.nodes != 1)} with {pool.gpus} GPUs" if pool else "none"


def _cost(before: EvaluatedStack | None, after: EvaluatedStack | None) -> CostChange | None:
    """Return the change of the cost; None if it stays the same, or one of the revisions does not report it."""
    old, new = (side.cost if side else None for side in (before, after))
    if (before and after and not (old and new)) or (amount := _amount(old)) == _amount(new):
        return None
    bases = dict.fromkeys(f"{side.basis}; spot is usually lower" for side in (old, new) if side)
    return CostChange(
        before=old.per_hour if old else None,
        after=new.per_hour if new else None,
        text=f"{amount} → {_amount(new)}" if before and after else _amount(new) if after else f"{amount} → none",
        basis=" → ".join(bases),
    )


def _amount(cost: EvaluatedCost | None) -> str:
    if cost is None:
        return "none"
    waiting = f" with {cost.waiting} job{'s' * (cost.waiting != 1)} waiting" if cost.waiting else ""
    return f"{money(cost.per_hour)}{waiting}"
