"""Steps that bring a cluster from its journal to its desired state, and changes that kubespray cannot make.

Sent unchanged to the machine that runs kubespray: standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NotRequired, TypedDict

from gpufleet.bare_metal.kubespray.driver.settings import UPGRADE
from gpufleet.bare_metal.kubespray.driver.settings import extra as extra_for
from gpufleet.problem import Path, Problem

CONTROL_PLANE, ETCD, WORKER = "control_plane", "etcd", "worker"

GROUPS = {CONTROL_PLANE: "kube_control_plane", ETCD: "etcd", WORKER: "kube_node"}
"""kubespray's groups, by role. kubespray itself combines them to `k8s_cluster` (roles/dynamic_groups at v2.31.0)."""

BROKEN = {CONTROL_PLANE: "broken_kube_control_plane", ETCD: "broken_etcd"}
"""Groups of dead members, by role (docs/operations/recover-control-plane.md at v2.31.0)."""

FIXED = ("ip", "access_ip", "etcd_member_name")
"""Variables of a host on which its certificates, its etcd member and other nodes depend."""

DETACH_SECONDS = 120
"""Pause in seconds between two checks of a drained node's volumes. Three pauses are the 6 minutes after which
Kubernetes detaches the volumes of an unresponsive node (maxWaitForUnmountDuration of its attach-detach controller)."""

LOST: dict[str, Any] = {
    "reset_nodes": False,
    "allow_ungraceful_removal": True,
    "drain_timeout": "1s",
    "drain_retries": 0,
    "drain_grace_period": 0,
}
"""Variables for the removal of lost nodes. kubespray always drains a node that has a Node object: the tag `pre-remove`
cannot be skipped, because the next role uses `nodes` (roles/remove-node/post-remove/tasks/main.yml:8 at v2.31.0). So
the drain ends after a second (0 means no limit to kubectl), its failure is ignored, and kubespray does not wait for
volumes (roles/remove_node/pre_remove/tasks/main.yml:27 and :44). Remaining pods are deleted with the Node object."""

RESET: Mapping[str, Any] = {"reset_confirmation": "yes", "skip_confirmation": True}
"""Variables that confirm a reset (playbooks/reset.yml:12-25 at v2.31.0)."""

IMMUTABLE: Mapping[str, Any] = {
    "cluster_name": "cluster.local",
    "kube_service_addresses": "10.233.0.0/18",
    "kube_pods_subnet": "10.233.64.0/18",
    "kube_network_node_prefix": 24,
    "kube_service_addresses_ipv6": "fd85:ee78:d8a6:8607::1000/116",
    "kube_pods_subnet_ipv6": "fd85:ee78:d8a6:8607::1:0000/112",
    "kube_network_node_prefix_ipv6": 120,
    "kube_network_plugin": "calico",
    "container_manager": "containerd",
    "etcd_deployment_type": "host",
}
"""Variables that no playbook changes in an existing cluster, with kubespray's defaults
(roles/kubespray_defaults/defaults/main/main.yml:119, :212, :243-289, :338 and :437 at v2.31.0). kubeadm reads networks
and name only when it creates the cluster; Services and nodes keep their addresses. kubespray installs another network
plugin, container manager or etcd deployment in addition to the old one, which holds the state."""


class Node(TypedDict):
    """A machine of the cluster."""

    roles: list[str]
    variables: dict[str, Any]
    secrets: NotRequired[str]
    """Digest of its secret variables, known only on the machine that runs kubespray."""
    generation: NotRequired[int]
    """Generation of the machine's installation; 1 if missing."""


class Desired(TypedDict):
    """Desired state. Nodes are in the order of kubespray's groups, whose first nodes are special."""

    nodes: dict[str, Node]
    variables: dict[str, dict[str, Any]]
    kubespray: str
    kubernetes: str
    drain_seconds: int
    drain_grace_seconds: int
    upgrade_serial: str
    forks: NotRequired[int | None]
    """Number of machines worked on at once; None or missing for a number that follows from that of the machines."""
    lost: list[str]


class Journal(TypedDict):
    """State of the cluster after all successful runs."""

    identity: str
    members: dict[str, Node]
    touched: dict[str, Node]
    secrets: str | None
    kubespray: str
    kubernetes: str
    variables: NotRequired[dict[str, dict[str, Any]]]
    """Variables that every node has, by group, with digests of secret ones. Missing if unknown: after a member has been
    removed, and in journals of older drivers."""
    immutable: NotRequired[dict[str, Any]]
    """Values of `IMMUTABLE` with which the cluster was created; missing in journals of older drivers."""


class Step(TypedDict):
    """One run of a playbook: the nodes of its inventory, its limit, and the nodes that are up to date afterwards."""

    playbook: str
    inventory: dict[str, Node]
    limit: list[str]
    extra: dict[str, Any]
    brings: list[str]
    broken: NotRequired[list[str]]
    """Dead members, which are only in kubespray's groups of broken nodes."""


def with_role(nodes: Mapping[str, Node], role: str) -> list[str]:
    """Return the names of nodes with a role, in order."""
    return [name for name, node in nodes.items() if role in node["roles"]]


def numbers(version: str) -> tuple[int, int, int]:
    """Return major, minor and patch number of a version, with or without a leading `v`. Raise ValueError for others."""
    found = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)", version)
    if not found:
        raise ValueError(f"{version!r} has no major, minor and patch number")
    return int(found[1]), int(found[2]), int(found[3])


def leaving(journal: Journal, desired: Desired) -> dict[str, Node]:
    """Return nodes that are no longer desired, among the cluster's members and those that a run has started with."""
    known = journal["touched"] | journal["members"]
    return {name: node for name, node in known.items() if name not in desired["nodes"]}


def hosts(nodes: Mapping[str, Node], broken: Collection[str] = ()) -> dict[str, Any]:
    """Return an inventory for Ansible's `yaml` plugin. Broken nodes are in separate groups."""
    groups: dict[str, Any] = {group: {"hosts": {}} for group in GROUPS.values()}
    if broken:
        groups |= {group: {"hosts": {}} for group in BROKEN.values()}
    for role, group in GROUPS.items():
        for name in with_role(nodes, role):
            if name not in broken:
                groups[group]["hosts"][name] = {}
            elif role in BROKEN:
                groups[BROKEN[role]]["hosts"][name] = {}
    return {"all": {"hosts": {name: node["variables"] for name, node in nodes.items()}, "children": groups}}


# -- changes that kubespray cannot make -------------------------------------------------------------------------------


def change_problems(journal: Journal, desired: Desired) -> list[Problem]:
    """Return the changes that kubespray cannot make to the cluster, with paths in `desired`; none for a new cluster."""
    if not journal["members"]:
        return []
    rules: tuple[Callable[[Journal, Desired], Iterator[Problem]], ...] = (
        *(_versions, _immutable, _firsts, _roles, _addresses, _etcd),
    )
    return [problem for rule in rules for problem in rule(journal, desired)]


def _versions(journal: Journal, desired: Desired) -> Iterator[Problem]:
    for key in ("kubernetes", "kubespray"):
        before, after = journal[key], desired[key]
        (major, old, _), (next_major, new, _) = numbers(before), numbers(after)
        if numbers(after) < numbers(before):
            message = f"{after} is older than {before}, the cluster's version; use {before} or newer"
            yield Problem((key,), "older-version", message)
        elif next_major != major or new > old + 1:
            message = (
                f"{after} is more than one minor version after {before}, the cluster's version; kubespray upgrades one"
                f" minor version at a time; upgrade to {major}.{old + 1} first"
            )
            yield Problem((key,), "skipped-minor-version", message)


def immutable(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of `IMMUTABLE`, from variables by group. IPv6 variables are included only if it is enabled."""
    values = {**IMMUTABLE, **{name: value for name, (_, value) in _given(variables).items()}}
    switches = {**variables.get("all", {}), **variables.get("k8s_cluster", {})}
    if switches.get("ipv6_stack", switches.get("enable_dual_stack_networks", False)):
        return values
    return {name: value for name, value in values.items() if not name.endswith("_ipv6")}


def _given(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, Any]]:
    """Return the variables of `IMMUTABLE` that are set, each with group and value. `k8s_cluster` overrides `all`."""
    return {
        name: (group, variables[group][name])
        for group in ("all", "k8s_cluster")
        for name in IMMUTABLE
        if name in variables.get(group, {})
    }


def _immutable(journal: Journal, desired: Desired) -> Iterator[Problem]:
    before, given = journal.get("immutable", {}), _given(desired["variables"])
    for name, value in immutable(desired["variables"]).items():
        # YAML may contain a number as text.
        if str(before.get(name, value)) != str(value):
            group = given[name][0] if name in given else "all"
            message = (
                f"{value} differs from {before[name]}, with which the cluster was created; kubespray cannot change it"
                f" in an existing cluster; restore {before[name]}, or create a new cluster"
            )
            yield Problem(("variables", group, name), "immutable-variable", message)


def _firsts(journal: Journal, desired: Desired) -> Iterator[Problem]:
    """Require that the first node of either group stays, and that new nodes are appended (docs/operations/nodes.md at
    v2.31.0)."""
    where: Path = ("nodes",)
    dead = dead_members(journal, desired)
    for role in (CONTROL_PLANE, ETCD):
        before, after = with_role(journal["members"], role), with_role(desired["nodes"], role)
        if before and not {*before} - {*dead}:
            message = (
                f"no node of {GROUPS[role]} is left; recovery requires one that runs; start one, or restore etcd's"
                " snapshot into a new cluster"
            )
            yield Problem(where, "no-member-left", message)
            continue
        before = [name for name in before if name not in dead]
        if before and before[0] not in desired["nodes"]:
            message = (
                f"{before[0]} is the first node of {GROUPS[role]}, which kubespray cannot remove while it runs; keep it"
                " in the list, or switch it off and list it in lost"
            )
            yield Problem(where, "first-node-removed", message)
        elif [name for name in after if name in before] + [name for name in after if name not in before] != after:
            message = f"a new node precedes an existing one in {GROUPS[role]}; move it to the end of the list"
            yield Problem(where, "node-not-appended", message)
        elif [name for name in before if name in after] != [name for name in after if name in before]:
            message = f"the order of nodes in {GROUPS[role]} has changed, but kubespray depends on it; restore it"
            yield Problem(where, "node-order", message)


def _roles(journal: Journal, desired: Desired) -> Iterator[Problem]:
    dead = dead_members(journal, desired)
    for name, node in journal["members"].items():
        if name not in desired["nodes"] or name in dead:
            continue
        wanted = desired["nodes"][name]["roles"]
        for role in node["roles"]:
            if role not in wanted:
                message = (
                    f"no longer has the role {role}, which kubespray cannot remove from a node; remove the node, then"
                    " add it again"
                )
                yield Problem(("nodes", name), "role-removed", message)
        if ETCD in wanted and ETCD not in node["roles"]:
            message = (
                f"gains the role {ETCD}, which kubespray only gives to new nodes; remove the node, then add it again"
            )
            yield Problem(("nodes", name), "etcd-role-added", message)


def _addresses(journal: Journal, desired: Desired) -> Iterator[Problem]:
    dead = dead_members(journal, desired)
    for name, node in journal["members"].items():
        after = (node if name in dead else desired["nodes"].get(name, node))["variables"]
        for key in FIXED:
            if node["variables"].get(key) != after.get(key):
                message = (
                    f"{key} changes from {node['variables'].get(key)} to {after.get(key)}, but certificates and other"
                    " nodes depend on it; remove the node, then add it again"
                )
                yield Problem(("nodes", name), "fixed-variable", message)


def _etcd(journal: Journal, desired: Desired) -> Iterator[Problem]:
    before, after = set(with_role(journal["members"], ETCD)), set(with_role(desired["nodes"], ETCD))
    # Dead members have no vote to lose, so their replacements only join.
    before -= {*dead_members(journal, desired)}
    if before - after and after - before:
        message = (
            f"etcd gains {', '.join(sorted(after - before))} and loses {', '.join(sorted(before - after))} at once; add"
            " the new members first, then remove the old ones"
        )
        yield Problem(("nodes",), "etcd-members-exchanged", message)


# -- the next step ----------------------------------------------------------------------------------------------------


def next_step(journal: Journal, desired: Desired) -> Step | None:
    """Return the next step towards the desired state; None if it is reached. Removals of running nodes are separate.

    First remove dead members, then upgrade existing nodes, then apply all other changes in one run.
    """
    members, nodes = journal["members"], desired["nodes"]
    if not members:
        return whole("cluster.yml", nodes, list(nodes))
    if dead := dead_members(journal, desired):
        return without_members(journal, desired, dead)
    # Lost nodes would block every run without a limit.
    going = {name: node for name, node in leaving(journal, desired).items() if name not in desired["lost"]}
    if (journal["kubernetes"], journal["kubespray"]) != (desired["kubernetes"], desired["kubespray"]):
        # New nodes are not part of an upgrade, because there is nothing to drain on them.
        staying = {name: node for name, node in nodes.items() if name in members}
        extra = _drain(desired) | {"serial": desired["upgrade_serial"]}
        return whole("upgrade-cluster.yml", staying | going, list(staying), extra)
    changed = [name for name, node in nodes.items() if members.get(name) != node]
    everyone = nodes | going
    variables = changed_variables(journal, desired)
    if any(node["roles"] != [WORKER] for node in going.values()):
        # The removal of a member ends with a run that applies all variables, so another one is unnecessary.
        variables = []
    if variables is None or variables or not all(_by_itself(members.get(name), nodes[name]) for name in changed):
        return whole("cluster.yml", everyone, list(nodes), _for_all(journal, desired, variables))
    if changed:
        return {"playbook": "scale.yml", "inventory": everyone, "limit": changed, "extra": {}, "brings": changed}
    return None


def changed_variables(journal: Journal, desired: Desired) -> list[str] | None:
    """Return the names of variables that differ from those of the whole cluster; None if these are unknown."""
    if "variables" not in journal:
        return None
    before, after = journal["variables"], desired["variables"]
    return sorted(
        {
            name
            for group in before.keys() | after.keys()
            for name in before.get(group, {}).keys() | after.get(group, {}).keys()
            if before.get(group, {}).get(name, _ABSENT) != after.get(group, {}).get(name, _ABSENT)
        }
    )


_ABSENT = object()


def _for_all(journal: Journal, desired: Desired, variables: list[str] | None) -> dict[str, Any]:
    """Return the extra variables that cluster.yml requires to apply all changes."""
    members, nodes = journal["members"], desired["nodes"]
    found = dict(UPGRADE) if variables is None else extra_for(variables)
    for name in with_role(nodes, CONTROL_PLANE):
        before, after = (side[name]["variables"] if name in side else {} for side in (members, nodes))
        if name in members:
            changed = before.keys() | after.keys()
            found |= extra_for(key for key in changed if before.get(key, _ABSENT) != after.get(key, _ABSENT))
    if any(name not in members for name in with_role(nodes, ETCD)):
        # docs/operations/nodes.md:141 and :144 at v2.31.0, "Adding an etcd node".
        found |= {"etcd_retries": 10, **UPGRADE}
    return found


def _by_itself(before: Node | None, after: Node) -> bool:
    """Return whether a node can be updated without the others: new workers, and existing workers with equal roles."""
    return (
        after["roles"] == [WORKER] if before is None else before["roles"] == after["roles"] and WORKER in after["roles"]
    )


def whole(playbook: str, nodes: dict[str, Node], brings: list[str], extra: dict[str, Any] | None = None) -> Step:
    """Return a run on every node of its inventory. kubespray rejects an even number of etcd members, which is
    unavoidable while one is being replaced (roles/validate_inventory/tasks/main.yml:58-63 at v2.31.0)."""
    members = len(with_role(nodes, ETCD))
    even = {"ignore_assert_errors": True} if members and members % 2 == 0 else {}
    return {"playbook": playbook, "inventory": nodes, "limit": [], "extra": {**(extra or {}), **even}, "brings": brings}


# -- dead members -----------------------------------------------------------------------------------------------------


def dead_members(journal: Journal, desired: Desired) -> list[str]:
    """Return members of etcd or of the control plane that will not return: lost nodes, and reinstalled machines."""
    return [
        name
        for name, node in journal["members"].items()
        if node["roles"] != [WORKER]
        and (
            name in desired["lost"]
            if name not in desired["nodes"]
            else node.get("generation", 1) != desired["nodes"][name].get("generation", 1)
        )
    ]


def without_members(journal: Journal, desired: Desired, dead: list[str]) -> Step:
    """Return the run that removes dead members. The remaining members perform it; new members join in a later run, when
    the API server responds again."""
    members = journal["members"]
    inventory = {name: node for name, node in members.items() if name in dead or name not in desired["lost"]}
    if not _has_to_recover(members, dead):
        extra = LOST | {"node": ",".join(dead), "skip_confirmation": True}
        return whole("remove-node.yml", inventory, dead, extra)
    survivors = {name: node for name, node in inventory.items() if name not in dead}
    limit = [name for name, node in survivors.items() if node["roles"] != [WORKER]]
    step = whole("recover-control-plane.yml", survivors, dead, {"etcd_retries": 10, **UPGRADE})
    return step | {"inventory": inventory, "limit": limit, "broken": dead}


def _has_to_recover(members: Mapping[str, Node], dead: Collection[str]) -> bool:
    """Return whether remove-node.yml cannot remove the dead members: it runs on the first node of either group, and
    requires etcd's quorum (roles/remove_node/pre_remove/tasks/main.yml:8 and
    roles/remove-node/remove-etcd-node/tasks/main.yml:9 at v2.31.0)."""
    etcd = with_role(members, ETCD)
    firsts = {*with_role(members, CONTROL_PLANE)[:1], *etcd[:1]}
    return bool(firsts & {*dead}) or 2 * len([name for name in etcd if name not in dead]) <= len(etcd)


# -- removals ---------------------------------------------------------------------------------------------------------


def removals(journal: Journal, desired: Desired) -> list[Step]:
    """Return the runs that remove nodes which are no longer desired: one for nodes to drain, one for lost nodes."""
    gone, steps = leaving(journal, desired), []
    for lost in (False, True):
        names = [name for name in gone if (name in desired["lost"]) == lost]
        extra = LOST if lost else _drain(desired) | {"drain_grace_period": _grace_and_detach(desired)}
        extra = extra | {"node": ",".join(names), "skip_confirmation": True}
        if names:
            steps.append(whole("remove-node.yml", desired["nodes"] | gone, names, extra))
    return steps


def _drain(desired: Desired) -> dict[str, Any]:
    """Return variables that limit the drain of a node to `drain_seconds`, for upgrades and removals.

    By default, kubespray repeats a drain that timed out 3 times (`drain_retries`), so it would wait four times as long
    (roles/remove_node/pre_remove/tasks/main.yml:29-31, roles/upgrade/pre-upgrade/tasks/main.yml:69-71 at v2.31.0).
    kubectl itself repeats rejected evictions until its timeout.
    """
    return {
        "drain_timeout": f"{desired['drain_seconds']}s",
        "drain_retries": 0,
        "drain_grace_period": desired["drain_grace_seconds"],
    }


def _grace_and_detach(desired: Desired) -> str:
    """Return a template of `drain_grace_period` for removals. kubespray uses the variable twice there: as the grace
    period of the drain, then as the pause between four looks at the node's volumes
    (roles/remove_node/pre_remove/tasks/main.yml:17 and :41 at v2.31.0). The drain's result tells the two apart."""
    drained = "'drain' in (result | default({})).cmd | default([])"
    return f"{{{{ {DETACH_SECONDS} if {drained} else {desired['drain_grace_seconds']} }}}}"


def committed(journal: Journal, desired: Desired, step: Step) -> Journal:
    """Return the journal after a successful step."""
    brings = step["brings"]
    after = journal.copy()
    after["touched"] = {name: node for name, node in journal["touched"].items() if name not in brings}
    if step["playbook"] in ("remove-node.yml", "recover-control-plane.yml"):
        left = {name: node for name, node in journal["members"].items() if name in brings}
        after["members"] = {name: node for name, node in journal["members"].items() if name not in brings}
        # The remaining nodes still refer to the removed member of etcd or of the control plane.
        if any(node["roles"] != [WORKER] for node in left.values()):
            after.pop("variables", None)
        return after
    members = journal["members"] | {name: desired["nodes"][name] for name in brings}
    # In the desired order, because the first node of a group is special.
    after["members"] = {name: members[name] for name in desired["nodes"] | members if name in members}
    if not step["limit"]:
        after |= {"kubernetes": desired["kubernetes"], "kubespray": desired["kubespray"]}
        after["variables"] = desired["variables"]
        after["immutable"] = immutable(desired["variables"])
    return after
