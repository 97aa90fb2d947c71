"""Runs of `pulumi up` on bare-metal machines, derived from the payloads of two revisions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from gpufleet.bare_metal.container_toolkit import JIT_CDI_SINCE, upstream
from gpufleet.bare_metal.kubespray.driver.settings import MEMBERS, UPGRADE, left_by_hand, ways
from gpufleet.bare_metal.kubespray.driver.steps import (
    Desired,
    Journal,
    Step,
    change_problems,
    changed_variables,
    committed,
    next_step,
    removals,
)
from gpufleet.bare_metal.kubespray.rules import settled
from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.diff.evaluation import EvaluatedResource

_TOOLKIT, _CLUSTER = "gpu-runners:index:NvidiaContainerToolkit", "gpu-runners:index:KubesprayCluster"

_MANY = 4
"""Maximum number of machines listed by name."""


def runs(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> list[str]:
    """Return the runs in order, one line each. Clusters that only the new revision has are omitted."""
    return [*_toolkits(before, after), *_moved(before, after), *_playbooks(before, after), *_ends(before, after)]


def refused_kubespray_changes(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> list[str]:
    """Return changes that kubespray cannot make to a cluster, one line each. `pulumi up` would fail with them."""
    impossible = (
        str(problem) for old, new in _clusters(before, after) for problem in change_problems(settled(old), new)
    )
    return [*_unmoved(before, after), *impossible]


def _unmoved(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> Iterator[str]:
    """Yield a line for each cluster whose kubespray would run on another machine, or in another folder, without its
    journal."""
    old, new = ({each.name: each for each in side if resets_a_cluster(each)} for side in (before, after))
    moved = _handed_over(before)
    for name in old.keys() & new.keys() - _handed_over(after).keys():
        cluster = name.removesuffix("-cluster")
        # After a move, the payload of the cluster's own command is the journal.
        if _place(old[name], moved.get(name)) != _place(new[name]):
            yield (
                f"runOn: another machine would run kubespray, but the journal of {cluster} is on the old one, so pulumi"
                " up would fail; add movedFrom with the old value of runOn, or restore runOn"
            )
        elif _folder(old[name]) != _folder(new[name]):
            yield (
                f"directory: {_folder(new[name])} has no journal of {cluster}, so pulumi up would fail; restore"
                f" directory, or first move {_folder(old[name])} there (--allow kubespray)"
            )


def _moved(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> Iterator[str]:
    """Yield a line for each cluster whose journal moves to another machine."""
    done = _handed_over(before)
    for name, each in _handed_over(after).items():
        if name not in done or done[name].inputs.get("stdin") != each.inputs.get("stdin"):
            to = json.loads(str(each.inputs["stdin"]))["to"]
            yield f"kubespray's journal of {name.removesuffix('-cluster')} moves to {to}; nothing runs on the machines"


def resets_a_cluster(each: EvaluatedResource) -> bool:
    """Return whether the deletion of a resource resets a cluster."""
    return f"{_CLUSTER}$" in each.urn and str(each.inputs.get("delete")).endswith("/run reset")


def _handed_over(side: Sequence[EvaluatedResource]) -> Mapping[str, EvaluatedResource]:
    """Return the commands that read a journal on its old machine, by name of the cluster's command."""
    found = (each for each in side if hands_over(each))
    return {each.name.replace("-previous-cluster", "-cluster"): each for each in found}


def hands_over(each: EvaluatedResource) -> bool:
    """Return whether a resource reads a journal on its old machine. It may have the URN of the cluster that it was."""
    return f"{_CLUSTER}$" in each.urn and str(each.inputs.get("create")).endswith("/run hand-over")


def _place(cluster: EvaluatedResource, moved: EvaluatedResource | None = None) -> str:
    """Return the machine that runs kubespray, without the name of a bastion, which is free; older revisions only show
    whether it is the one that runs Pulumi."""
    stdin = (moved or cluster).inputs.get("stdin")
    payload = json.loads(stdin) if isinstance(stdin, str) and stdin.startswith("{") else {}
    machine = str(payload.get("to" if moved else "machine", ""))
    return f"{cluster.type} {machine.partition(' (')[2]}"


def _folder(cluster: EvaluatedResource) -> str:
    return str(cluster.inputs["delete"]).removesuffix("/run reset").rpartition(" ")[2]


# -- kubespray --------------------------------------------------------------------------------------------------------


def _clusters(
    before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]
) -> Iterator[tuple[Desired, Desired]]:
    """Yield the desired state of each cluster, before and after."""
    old, new = (
        {each.urn: each for each in side if f"{_CLUSTER}$" in each.urn and each.urn.endswith("-converge")}
        for side in (before, after)
    )
    for urn in old.keys() & new.keys():
        desired = [_desired(each.inputs.get("stdin")) for each in (old[urn], new[urn])]
        if all(desired):
            yield cast("tuple[Desired, Desired]", tuple(desired))


def _desired(stdin: Any) -> Any:
    """Return the desired state in a payload; None for older revisions, in which only the engine knew the payload."""
    try:
        return json.loads(stdin).get("desired")
    except (TypeError, ValueError, AttributeError):
        return None


def _playbooks(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> Iterator[str]:
    for old, new in _clusters(before, after):
        journal = settled(old)
        if change_problems(journal, new):
            continue
        while step := next_step(journal, new):
            yield _description(step, journal, new)
            journal = committed(journal, new, step)
        for step in removals(journal, new):
            yield _description(step, journal, new)


def _ends(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> Iterator[str]:
    """Yield a line for each cluster that the deletion of its command resets. A cluster whose kubespray would run on
    another machine has a command of the same name, for which the deletion of the old one is refused."""
    kept = {each.name for each in after if resets_a_cluster(each)}
    for each in before:
        if resets_a_cluster(each) and each.name not in kept:
            converge = each.name.replace("-cluster", "-converge")
            payloads = [_desired(other.inputs.get("stdin")) for other in before if other.name == converge]
            nodes = next((list(desired["nodes"]) for desired in payloads if desired), [])
            where = f" for {_named(nodes)}" if nodes else ""
            yield f"kubespray runs reset.yml{where}: Kubernetes and the data of etcd are deleted"


def _description(step: Step, journal: Journal, desired: Desired) -> str:
    playbook, names = step["playbook"], step["limit"] or step["brings"]
    where = f"kubespray runs {playbook} for {_named(names)}"
    if playbook == "upgrade-cluster.yml":
        steps = (("kubespray", "kubespray"), ("Kubernetes", "kubernetes"))
        versions = [
            f"{what} {journal[key]} → {desired[key]}"  # type: ignore[literal-required]
            for what, key in steps
            if journal[key] != desired[key]  # type: ignore[literal-required]
        ]
        return f"{where}: {', '.join(versions)}; workers are drained, {desired['upgrade_serial']} at a time"
    if playbook == "remove-node.yml":
        way = "without connecting to it" if step["extra"].get("reset_nodes") is False else "drained and reset first"
        return f"{where}: {way}"
    if playbook == "recover-control-plane.yml":
        return f"{where}: unreachable members are removed; if quorum is lost, etcd restarts from a snapshot"
    if playbook == "cluster.yml":
        return f"{where}{_effects(step, changed_variables(journal, desired) or [], desired)}"
    return where


def _effects(step: Step, changed: Sequence[str], desired: Desired) -> str:
    """Return the effects of a run of cluster.yml on installed nodes: variables that it applies, and restarts."""
    values = {name: value for variables in desired["variables"].values() for name, value in variables.items()}
    effects = [way.effect for way in ways(changed)]
    if set(UPGRADE) <= set(step["extra"]) and MEMBERS.effect not in effects and "etcd_retries" in step["extra"]:
        effects.append(MEMBERS.effect)
    applied = f" to apply {listed(changed, 'and')}" if changed else ""
    restarts = f": {'; '.join(effects)}; no node is drained" if effects else ""
    by_hand = "".join(f"; {line}" for line in left_by_hand({name: values.get(name) for name in changed}))
    return f"{applied}{restarts}{by_hand}"


def _named(names: Sequence[str]) -> str:
    return listed(names, "and") if len(names) <= _MANY else f"{len(names)} machines"


# -- NVIDIA's container toolkit ---------------------------------------------------------------------------------------


def _toolkits(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> Iterator[str]:
    old, new = (_toolkit_values(side) for side in (before, after))
    moves: dict[tuple[str, str], list[str]] = {}
    restarts: dict[str, list[str]] = {}
    for urn in old.keys() & new.keys():
        was, now = old[urn], new[urn]
        host = urn.rpartition("::")[2].removeprefix("nvidia-container-toolkit-")
        if was["version"] != now["version"]:
            moves.setdefault((was["version"], now["version"]), []).append(host)
        if now["engine"] and any(was[name] != now[name] for name in ("engine", "cdi_flag")):
            restarts.setdefault(now["engine"], []).append(host)
    for (was_version, now_version), hosts in moves.items():
        where = _one_by_one(hosts)
        yield f"NVIDIA's container toolkit {was_version} → {now_version} on {where}{_mode(was_version, now_version)}"
    for engine, hosts in restarts.items():
        effect = "; a machine with running containers is refused" if engine == "docker" else "; containers continue"
        yield f"{engine} restarts on {_one_by_one(hosts)}{effect}"


def _one_by_one(hosts: Sequence[str]) -> str:
    return _named(sorted(hosts)) + (", one after the other" if len(hosts) > 1 else "")


def _toolkit_values(side: Sequence[EvaluatedResource]) -> Mapping[str, Mapping[str, str]]:
    """Return the values in the first lines of each machine's script."""
    names = "version|engine|cdi_flag"
    found = {
        each.urn: dict(re.findall(rf"^({names})='?([^'\n]*)'?$", str(each.inputs.get("stdin")), re.MULTILINE))
        for each in side
        if f"{_TOOLKIT}$" in each.urn
    }
    return {urn: values for urn, values in found.items() if len(values) == len(names.split("|"))}


def _mode(was: str, now: str) -> str:
    since = [upstream(version) >= JIT_CDI_SINCE for version in (was, now)]
    if since == [False, True]:
        return ": containers get GPUs through jit-cdi; software that requires the legacy runtime stops working"
    return ": containers get GPUs through the legacy runtime again" if since == [True, False] else ""
