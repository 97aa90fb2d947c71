"""Upgrades of all clusters that serve a label at the same time, such as two regions of one fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.diff.evaluation import EvaluatedLabel
from gpufleet_tools.diff.labels import service
from gpufleet_tools.diff.settings.changes import SettingChange, row

UPGRADES = frozenset(
    {
        "arc.version",
        "cluster.addons",
        "cluster.karpenter.version",
        "cluster.kubernetesVersion",
        "cluster.kubespray.kubernetesVersion",
        "cluster.kubespray.source.version",
        "cluster.nodePools.<pool>.amis",
        "cluster.nvidiaContainerToolkit.version",
        "efaPlugin.version",
        "gpuOperator.version",
        "nvidiaPlugin.version",
    }
)
"""Rows of the settings whose change is an upgrade that can stop all jobs of a cluster."""


def simultaneous_upgrades(
    before: Sequence[EvaluatedLabel],
    after: Sequence[EvaluatedLabel],
    settings: Mapping[str, Sequence[SettingChange]],
) -> Iterator[tuple[str, str, str]]:
    """Yield labels all of whose stacks are upgraded, as name, stack and message. `settings` has the changed settings
    of each stack."""
    upgraded = {stack: [each.words for each in changes if _is_upgrade(each)] for stack, changes in settings.items()}
    were, are = _stacks(before), _stacks(after)
    found: dict[tuple[str, ...], list[str]] = {}
    for served in were.keys() & are.keys():
        stacks = tuple(sorted(were[served] & are[served]))
        if len(stacks) > 1 and all(upgraded.get(stack) for stack in stacks):
            found.setdefault(stacks, []).append(served[0])
    for stacks, labels in found.items():
        words = dict.fromkeys(word for stack in stacks for word in upgraded[stack])
        yield (
            "upgraded-at-once",
            stacks[0],
            f"{listed(stacks, 'and')}, which serve {listed(sorted(labels), 'and')}, are upgraded at the same time"
            f" ({', '.join(words)}): a fault would leave no cluster for {'its' if len(labels) == 1 else 'their'} jobs;"
            " upgrade one stack, watch its jobs, then upgrade the others in another pull request",
        )


def _stacks(labels: Sequence[EvaluatedLabel]) -> dict[tuple[str, str], set[str]]:
    """Return the stacks that serve each label to each organisation or repository."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in labels:
        found.setdefault(service(each), set()).add(each.stack)
    return found


def _is_upgrade(change: SettingChange) -> bool:
    path = row(tuple(change.path.split(".")))
    return any(".".join(path[:depth]) in UPGRADES for depth in range(1, len(path) + 1))
