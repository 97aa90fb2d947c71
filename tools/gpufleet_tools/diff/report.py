"""Human-readable forms of a difference: text for a terminal, Markdown for a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpufleet_tools.diff.difference import Difference, StackDifference
from gpufleet_tools.diff.labels import LabelChange, RefusedChange
from gpufleet_tools.diff.resources import ACTIONS, ResourceChange
from gpufleet_tools.diff.settings.changes import SettingChange

LIMIT = 65_536
"""Maximum length of a comment on GitHub, in characters. The API rejects a longer one: `body is too long (maximum is
65536 characters)`."""

_LONGEST = 1_000
"""Maximum length of a line, in characters; a line may contain a whole script."""

_SIGNS = {"deleted": "-", "replaced": "±", "refused": "!", "unknown": "?", "updated": "~", "created": "+"}


def headline(difference: Difference) -> str:
    """Return the result in a few words."""
    if difference.invalid:
        return "refused: invalid"
    if difference.errors:
        return "incomplete"
    if difference.refused:
        return f"refused: {', '.join(dict.fromkeys(refusal.name for refusal in difference.refused))}"
    if not difference.changes:
        return "no changes"
    return "changes for users" if difference.labels else "no change for users"


def written(difference: Difference, form: str) -> str:
    """Return the difference as `text`, `markdown` or `json`."""
    if form == "json":
        return difference.model_dump_json(indent=2) + "\n"
    return markdown(difference) if form == "markdown" else text(difference)


# -- phrases ----------------------------------------------------------------------------------------------------------


def _users(changes: Collection[LabelChange]) -> str:
    # A label that other stacks still serve is not gone.
    counts: Counter[str] = Counter(
        "reduced" if change.still_served_by else "reassigned" if _is_reassigned(change) else change.change
        for change in changes
    )
    order = ("removed", "reassigned", "renamed", "reduced", "changed", "added")
    counted = ", ".join(f"{_labels(counts[each])} {each}" for each in order if counts[each]) or "nothing"
    return "; ".join([counted, *_crowded(changes)])


def _is_reassigned(change: LabelChange) -> bool:
    """Return whether a label keeps its name, but serves other users."""
    return change.change == "renamed" and change.new_label == change.label


def _crowded(changes: Iterable[LabelChange]) -> Iterator[str]:
    """Yield the labels that are left without a guaranteed job, or come without one."""
    found = [change.new_label or change.label for change in changes if _loses_guarantee(change)]
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        yield f"no guaranteed job for {', '.join(found[:3])}{more}: other labels can take all of the pool"


def _loses_guarantee(change: LabelChange) -> bool:
    none_left = any(each.field == "guaranteed" and each.after == "0" for each in change.fields)
    return none_left and change.change != "removed"


def _labels(count: int) -> str:
    return f"{count} label{'s' * (count != 1)}"


def _stack_summary(stack: StackDifference) -> str:
    return f"cluster moves, {stack.moved}" if stack.moved else _action_counts(stack.resources)


def _action_counts(resources: Iterable[ResourceChange]) -> str:
    counts = Counter(resource.action for resource in resources)
    phrases = {"refused": "rejected by the API server", "unknown": "that may be replaced"}
    parts = [f"{counts[action]} {phrases.get(action, action)}" for action in ACTIONS if counts[action]]
    return ", ".join(parts) or "nothing"


def _label_line(change: LabelChange) -> str:
    """Return the changes of a label, without its name."""
    fields = "; ".join(
        f"{each.field} {each.before} → {each.after}" if each.before else f"{each.field} {each.after}"
        for each in change.fields
    )
    renamed = "reassigned" if _is_reassigned(change) else f"renamed to {change.new_label}"
    text = {"renamed": renamed, "changed": ""}.get(change.change, change.change)
    served = f"still served by {change.still_served_by}" if change.still_served_by else ""
    return ", ".join(filter(None, (text, served, fields)))


def _resource_line(change: ResourceChange) -> str:
    reasons = f": {'; '.join(change.reasons)}" if change.reasons else ""
    return f"{change.title} {_action(change)}{reasons}"


def _setting_line(change: SettingChange) -> str:
    audience = {"users": ", for users", "operators": "", "no effect": ", no effect"}[change.audience]
    return f"{change.path} {change.before} → {change.after} ({change.words}{audience})"


def _action(change: ResourceChange) -> str:
    return {"refused": "rejected by the API server", "unknown": "may be replaced"}.get(change.action, change.action)


def _refused(difference: Difference) -> str:
    counts = Counter(f"{each.name} in {each.stack}" for each in difference.refused)
    named = [f"{what} ({count})" if count > 1 else what for what, count in counts.items()]
    return ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "") or "nothing"


def _stacks(difference: Difference) -> str:
    marks = {"existing": "", "new": " (new)", "removed": " (removed)"}
    names = [f"{each.stack}{marks[each.state]}" for each in difference.stacks]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _cost(stack: StackDifference) -> Iterator[str]:
    if stack.cost:
        yield f"cost per hour at max {stack.cost.text} ({stack.cost.basis})"


def _listeners(stack: StackDifference) -> Iterator[str]:
    if labels := stack.listeners:
        yield f"listeners of {_labels(len(labels))} restart; running jobs continue: {', '.join(labels)}"


def _costs(difference: Difference) -> Iterator[str]:
    """Yield the costs of the first three stacks in short; `_cost` also has the kind of prices."""
    costs = [f"{each.stack} {each.cost.text}" for each in difference.stacks if each.cost]
    if costs:
        yield f"cost per hour at max: {', '.join(costs[:3])}{' …' * (len(costs) > 3)}"


# -- text -------------------------------------------------------------------------------------------------------------


def text(difference: Difference) -> str:
    """Return the changes for users, then every changed resource with its changed inputs. Of created resources only the
    name is shown; `gpufleet preview` shows their inputs."""
    lines = [f"{headline(difference)} ({difference.base} → {difference.head})"]
    lines += [f"note: {note}" for note in difference.notes]
    lines += [f"error: {line}" for line in difference.errors]
    for refusal in difference.refusals:
        lines.append(
            f"{'allowed' if refusal.allowed else 'refused'}: {refusal.stack}: {refusal.message} [{refusal.name}]"
        )
    for stack in difference.stacks:
        lines += [f"not protected from deletion: {line}" for line in stack.unprotected]
    if difference.labels:
        lines += ["", f"users: {_users(difference.labels)}"]
        lines += [f"  {change.label} ({change.stack}): {_label_line(change)}" for change in difference.labels]
    for stack in difference.stacks:
        lines += _stack_lines(stack, difference.refusals)
    return "".join(f"{line}\n" for line in lines)


def _findings(stack: StackDifference, refusals: Iterable[RefusedChange]) -> Iterator[str]:
    """Yield the findings that are not listed as refused changes."""
    refused = {(each.name, each.message) for each in refusals if each.stack == stack.stack}
    for each in stack.findings:
        message = f"{each.path}: {each.message}"
        if (each.name, message) not in refused:
            yield f"{each.severity}: {message} [{each.name}]"


def _stack_lines(stack: StackDifference, refusals: Sequence[RefusedChange]) -> Iterator[str]:
    yield from ("", f"{stack.stack}: {_stack_summary(stack)}")
    yield from (f"  {line}" for line in [*stack.pools, *_cost(stack)])
    yield from (f"  setting {_setting_line(change)}" for change in stack.settings)
    yield from (f"  secret {line}" for line in stack.secrets)
    yield from (f"  {line}" for line in [*_listeners(stack), *stack.upgrade, *stack.runs])
    yield from (f"  {line}" for line in _findings(stack, refusals))
    for change in stack.resources:
        yield f"  {_SIGNS[change.action]} {_resource_line(change)}"
        if change.action != "created":
            yield from (f"      {line[:_LONGEST]}".rstrip() for line in change.diff)


# -- Markdown ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """Lines that belong together. If there is no room for all, the body is truncated."""

    opening: Sequence[str]
    body: Sequence[str]
    closing: Sequence[str] = ("",)


def markdown(difference: Difference, limit: int = LIMIT) -> str:
    """Return a comment of at most `limit` characters. Its first five lines are a summary. Long parts are folded, and
    the end is truncated if there is no room."""
    return _fitted(list(_blocks(difference)), limit)


def _blocks(difference: Difference) -> Iterator[_Block]:
    everything = [change for stack in difference.stacks for change in stack.resources]
    moved = any(stack.moved for stack in difference.stacks)
    counts = [_action_counts(everything)] if everything or not moved else []
    third, first = f"**Refused:** {_refused(difference)}", ""
    if difference.errors:
        what, why = ("Refused", difference.invalid) if difference.invalid else ("Incomplete", difference.errors)
        first = _plain(why[0])
        third = f"**{what}:** {first[:_LONGEST]}"
    incomplete = " (incomplete)" if difference.errors else ""
    head = [
        f"### gpufleet diff: {headline(difference)}",
        f"- **Compared:** {_plain(difference.base)} → {_plain(difference.head)}: {_stacks(difference) or 'no stack'}",
        f"- {third}",
        f"- **Users:** {'; '.join([_users(difference.labels), *_costs(difference)])}{incomplete}",
        f"- **Resources:** {'; '.join([*counts, *_highlights(difference.stacks)])}{incomplete}",
    ]
    yield _Block(head, [])
    # The third line already has the first error, unless it is truncated there.
    others = [line for line in map(_plain, difference.errors) if line != first or len(first) > _LONGEST]
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
            f"#### {stack.stack}: {_stack_summary(stack)}",
            [
                *map(_plain, [*stack.pools, *_cost(stack)]),
                *(f"setting {_plain(_setting_line(change))}" for change in stack.settings),
                *(f"secret {_plain(line)}" for line in stack.secrets),
                *map(_plain, [*_listeners(stack), *stack.upgrade, *stack.runs]),
                *map(_plain, _findings(stack, difference.refusals)),
                *(_plain(_resource_line(change)) for change in stack.resources),
            ],
        )
    for change in everything:
        if change.diff:
            yield _folded(change)


def _highlights(stacks: Sequence[StackDifference]) -> Iterator[str]:
    """Yield the first changes of each kind that the number of resources does not show."""
    for lines in (
        [f"cluster of {stack.stack} moves, {stack.moved}" for stack in stacks if stack.moved],
        [f"not protected from deletion: {line}" for stack in stacks for line in stack.unprotected],
        [line for stack in stacks for line in stack.pools],
        # Secrets of new and removed stacks are not listed.
        [f"secret {_plain(line)}" for stack in stacks if stack.state == "existing" for line in stack.secrets],
        [_plain(line) for stack in stacks for line in stack.runs],
    ):
        yield from lines[:3]


def _list(title: str, lines: Sequence[str]) -> Iterator[_Block]:
    if lines:
        yield _Block([title] if title else [], [f"- {line[:_LONGEST]}" for line in lines])


def _folded(change: ResourceChange) -> _Block:
    longest = max((len(run) for line in change.diff for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    summary = f"<details><summary>{_plain(change.title)} {_action(change)}</summary>"
    return _Block([summary, "", f"{fence}diff"], [line[:_LONGEST] for line in change.diff], [fence, "</details>", ""])


def _plain(line: str) -> str:
    """Escape HTML: `<secret>` is not a tag."""
    return html.escape(line, quote=False)


def _cell(line: str) -> str:
    # A bar would end the cell.
    return _plain(line).replace("|", "\\|")[:_LONGEST]


_CUT = "**Truncated** to {limit} characters: {left} of {all} parts are missing. Run `gpufleet diff` to see all."


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
    """Return as much of a block as there is room for; an empty list if not even one line of its body fits."""
    more = f"… {len(block.body)} lines in total"
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
