"""A difference for people: text for a terminal, Markdown for a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpufleet_tools.diff.difference import Difference, StackDifference
from gpufleet_tools.diff.labels import LabelChange, Refusal
from gpufleet_tools.diff.resources import ACTIONS, ResourceChange
from gpufleet_tools.diff.settings.changes import SettingChange

LIMIT = 65_536
"""Characters of a comment on GitHub: the API answers a longer one with `body is too long (maximum is 65536
characters)`."""

_LONGEST = 1_000
"""Characters of one line; a script in one line is no reading."""

_SIGNS = {"deleted": "-", "replaced": "±", "refused": "!", "unknown": "?", "updated": "~", "created": "+"}


def headline(difference: Difference) -> str:
    """What to know before anything else."""
    if difference.invalid:
        return "refused: invalid"
    if difference.unsaid:
        return "cannot say"
    if difference.refused:
        return f"refused: {', '.join(dict.fromkeys(refusal.name for refusal in difference.refused))}"
    if not difference.changes:
        return "nothing changes"
    return "changes for users" if difference.labels else "no change for users"


def written(difference: Difference, form: str) -> str:
    """Return the difference as `text`, `markdown` or `json`."""
    if form == "json":
        return difference.model_dump_json(indent=2) + "\n"
    return markdown(difference) if form == "markdown" else text(difference)


# -- in words ---------------------------------------------------------------------------------------------------------


def _users(changes: Iterable[LabelChange]) -> str:
    counts: Counter[str] = Counter(change.change for change in changes)
    order = ("removed", "renamed", "changed", "added")
    said = [f"{_labels(counts[each])} {each}" for each in order if counts[each]]
    return ", ".join(said) or "nothing"


def _labels(count: int) -> str:
    return f"{count} label{'s' * (count != 1)}"


def _happens(stack: StackDifference) -> str:
    return f"all in another place, {stack.moved}" if stack.moved else _counted(stack.resources)


def _counted(resources: Iterable[ResourceChange]) -> str:
    counts = Counter(resource.action for resource in resources)
    return ", ".join(f"{counts[action]} {_said(action)}" for action in ACTIONS if counts[action]) or "nothing"


def _said(action: str) -> str:
    return {"refused": "refused by the API server", "unknown": "that may be replaced"}.get(action, action)


def _label_line(change: LabelChange) -> str:
    """What changes about a label, without its name."""
    fields = "; ".join(
        f"{each.field} {each.before} → {each.after}" if each.before else f"{each.field} {each.after}"
        for each in change.fields
    )
    text = {"renamed": f"renamed to {change.new_label}", "changed": ""}.get(change.change, change.change)
    served = f"still served by stack {change.still_served_by}" if change.still_served_by else ""
    return ", ".join(filter(None, (text, served, fields)))


def _resource_line(change: ResourceChange) -> str:
    reasons = f": {'; '.join(change.reasons)}" if change.reasons else ""
    return f"{change.title} {_one(change)}{reasons}"


def _setting_line(change: SettingChange) -> str:
    audience = {"users": ", for users", "operators": "", "no effect": ", no effect"}[change.audience]
    return f"{change.path} {change.before} → {change.after} ({change.words}{audience})"


def _one(change: ResourceChange) -> str:
    return {"refused": "refused by the API server", "unknown": "may be replaced"}.get(change.action, change.action)


def _refused(difference: Difference) -> str:
    counts = Counter(f"{each.name} in {each.stack}" for each in difference.refused)
    named = [f"{what} ({count})" if count > 1 else what for what, count in counts.items()]
    return ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "") or "nothing"


def _stacks(difference: Difference) -> str:
    marks = {"there": "", "new": " (new)", "gone": " (gone)"}
    names = [f"{each.stack}{marks[each.state]}" for each in difference.stacks]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _cost(stack: StackDifference) -> Iterator[str]:
    if stack.cost:
        yield f"cost per hour at max {stack.cost.said} ({stack.cost.basis})"


def _listeners(stack: StackDifference) -> Iterator[str]:
    if labels := stack.listeners:
        yield f"listeners of {_labels(len(labels))} restart, no job is touched: {', '.join(labels)}"


def _costs(difference: Difference) -> Iterator[str]:
    """In short, of the first stacks; `_cost` has what kind of prices they are."""
    costs = [f"{each.stack} {each.cost.said}" for each in difference.stacks if each.cost]
    if costs:
        yield f"cost per hour at max: {', '.join(costs[:3])}{' …' * (len(costs) > 3)}"


# -- text -------------------------------------------------------------------------------------------------------------


def text(difference: Difference) -> str:
    """What changes for users first, then every resource, with the change of its inputs below it. What is created is
    named: `gpufleet preview` has all of it."""
    lines = [f"{headline(difference)} ({difference.base} → {difference.head})"]
    lines += [f"note: {note}" for note in difference.notes]
    lines += [f"cannot say: {line}" for line in difference.unsaid]
    for refusal in difference.refusals:
        lines.append(
            f"{'allowed' if refusal.allowed else 'refused'}: {refusal.stack}: {refusal.message} [{refusal.name}]"
        )
    if difference.labels:
        lines += ["", f"users: {_users(difference.labels)}"]
        lines += [f"  {change.label} ({change.stack}): {_label_line(change)}" for change in difference.labels]
    for stack in difference.stacks:
        lines += _stack_lines(stack, difference.refusals)
    return "".join(f"{line}\n" for line in lines)


def _findings(stack: StackDifference, refusals: Iterable[Refusal]) -> Iterator[str]:
    """Findings that are not among the refusals, which have the same words."""
    said = {(each.name, each.message) for each in refusals if each.stack == stack.stack}
    for each in stack.findings:
        message = f"{each.path}: {each.message}"
        if (each.name, message) not in said:
            yield f"{each.severity}: {message} [{each.name}]"


def _stack_lines(stack: StackDifference, refusals: Sequence[Refusal]) -> Iterator[str]:
    yield from ("", f"{stack.stack}: {_happens(stack)}")
    yield from (f"  {line}" for line in [*stack.pools, *_cost(stack)])
    yield from (f"  setting {_setting_line(change)}" for change in stack.settings)
    yield from (f"  secret {line}" for line in stack.secrets)
    yield from (f"  {line}" for line in [*_listeners(stack), *stack.runs])
    yield from (f"  {line}" for line in _findings(stack, refusals))
    for change in stack.resources:
        yield f"  {_SIGNS[change.action]} {_resource_line(change)}"
        if change.action != "created":
            yield from (f"      {line[:_LONGEST]}".rstrip() for line in change.diff)


# -- Markdown ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """Lines that belong together; where there is no room for all, the body is cut."""

    opening: Sequence[str]
    body: Sequence[str]
    closing: Sequence[str] = ("",)


def markdown(difference: Difference, limit: int = LIMIT) -> str:
    """A comment of at most that many characters. Its first five lines say it all; what is long is folded, and cut from
    the end where there is no room."""
    return _fitted(list(_blocks(difference)), limit)


def _blocks(difference: Difference) -> Iterator[_Block]:
    everything = [change for stack in difference.stacks for change in stack.resources]
    moved = any(stack.moved for stack in difference.stacks)
    counted = _counted(everything)
    happens = [*([counted] if everything or not moved else []), *_happening(difference.stacks)]
    third, first = f"**Refused:** {_refused(difference)}", ""
    if difference.unsaid:
        what, why = ("Refused", difference.invalid) if difference.invalid else ("Cannot say", difference.unsaid)
        first = _plain(why[0])
        third = f"**{what}:** {first[:_LONGEST]}"
    known = ", as far as can be said" if difference.unsaid else ""
    head = [
        f"### gpufleet diff: {headline(difference)}",
        f"- **Compared:** {_plain(difference.base)} → {_plain(difference.head)}: {_stacks(difference) or 'no stack'}",
        f"- {third}",
        f"- **Users:** {'; '.join([_users(difference.labels), *_costs(difference)])}{known}",
        f"- **Resources:** {'; '.join(happens)}{known}",
    ]
    yield _Block(head, [])
    # What the third line has whole is not said again.
    others = [line for line in map(_plain, difference.unsaid) if line != first or len(first) > _LONGEST]
    yield from _list("", [*map(_plain, difference.notes), *others])
    yield from _list(
        "#### Refused",
        [
            f"**{each.name}** in {each.stack}{' (allowed)' if each.allowed else ''}: {_plain(each.message)}"
            for each in difference.refusals
        ],
    )
    if difference.labels:
        rows = [f"| `{change.label}` | {change.stack} | {_cell(_label_line(change))} |" for change in difference.labels]
        yield _Block(["#### Users", "| runs-on | stack | change |", "| --- | --- | --- |"], rows)
    for stack in difference.stacks:
        yield from _list(
            f"#### {stack.stack}: {_happens(stack)}",
            [
                *map(_plain, [*stack.pools, *_cost(stack)]),
                *(f"setting {_plain(_setting_line(change))}" for change in stack.settings),
                *(f"secret {_plain(line)}" for line in stack.secrets),
                *map(_plain, [*_listeners(stack), *stack.runs]),
                *map(_plain, _findings(stack, difference.refusals)),
                *(_plain(_resource_line(change)) for change in stack.resources),
            ],
        )
    for change in everything:
        if change.diff:
            yield _folded(change)


def _happening(stacks: Sequence[StackDifference]) -> Iterator[str]:
    """What resources alone do not say, the first of each kind."""
    for lines in (
        [f"all of {stack.stack} in another place, {stack.moved}" for stack in stacks if stack.moved],
        [line for stack in stacks for line in stack.pools],
        # Those of a stack that comes or goes come and go with it.
        [f"secret {_plain(line)}" for stack in stacks if stack.state == "there" for line in stack.secrets],
        [_plain(line) for stack in stacks for line in stack.runs],
    ):
        yield from lines[:3]


def _list(title: str, lines: Sequence[str]) -> Iterator[_Block]:
    if lines:
        yield _Block([title] if title else [], [f"- {line[:_LONGEST]}" for line in lines])


def _folded(change: ResourceChange) -> _Block:
    longest = max((len(run) for line in change.diff for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    summary = f"<details><summary>{_plain(change.title)} {_one(change)}</summary>"
    return _Block([summary, "", f"{fence}diff"], [line[:_LONGEST] for line in change.diff], [fence, "</details>", ""])


def _plain(said: str) -> str:
    """Text that GitHub shows as it is: `<secret>` is no tag."""
    return html.escape(said, quote=False)


def _cell(said: str) -> str:
    # A bar would end the cell.
    return _plain(said).replace("|", "\\|")[:_LONGEST]


_CUT = "**Cut** at the {limit} characters of a comment: {left} of {all} parts are missing. `gpufleet diff` prints all."


def _fitted(blocks: Sequence[_Block], limit: int) -> str:
    lines: list[str] = []
    room = limit - len(_CUT) - 40
    for number, block in enumerate(blocks):
        whole = [*block.opening, *block.body, *block.closing]
        if _size(whole) <= room:
            lines += whole
            room -= _size(whole)
            continue
        lines += _shortened(block, room)
        lines.append(_CUT.format(limit=f"{limit:,}", left=len(blocks) - number, all=len(blocks)))
        break
    return "\n".join(lines).rstrip("\n") + "\n"


def _shortened(block: _Block, room: int) -> list[str]:
    """As much of a block as there is room for; nothing, where that is not a single line of its body."""
    more = f"… {len(block.body)} lines in all"
    room -= _size([*block.opening, more, *block.closing])
    kept = []
    for line in block.body:
        room -= _size([line])
        if room < 0:
            break
        kept.append(line)
    return [*block.opening, *kept, more, *block.closing] if kept else []


def _size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)
