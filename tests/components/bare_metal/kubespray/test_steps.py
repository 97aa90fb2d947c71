"""What kubespray is made to do, one step after another, and that it comes to an end with everything there."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.bare_metal.kubespray.args import Calico, Kubespray, KubesprayClusterArgs
from gpufleet.bare_metal.kubespray.driver.folder import NO_CLUSTER
from gpufleet.bare_metal.kubespray.driver.settings import left_by_hand
from gpufleet.bare_metal.kubespray.driver.steps import (
    IMMUTABLE,
    LOST,
    Desired,
    Journal,
    Step,
    committed,
    hosts,
    next_step,
    numbers,
    removals,
)
from gpufleet.bare_metal.kubespray.driver.steps import change_problems as impossible_changes
from gpufleet.bare_metal.kubespray.inventory import desired as wanted
from gpufleet.bare_metal.kubespray.rules import change_problems, grown
from tests.bare_metal import DOCUMENT_000, changed, clusters, node, with_node
from tests.components.bare_metal.kubespray.facts import IMMUTABLES

WORKERS = [node(f"w-{number}", f"198.51.100.{number}") for number in range(1, 5)]


def steps(journal: Journal, desired: Desired) -> tuple[list[Step], Journal]:
    """Every step of one `pulumi up`, all of which end well: the run for all, then the removals."""
    ran: list[Step] = []
    while step := next_step(journal, desired):
        ran.append(step)
        assert len(ran) < 5, "it comes to no end"
        journal = committed(journal, desired, step)
    for step in removals(journal, desired):
        ran.append(step)
        journal = committed(journal, desired, step)
    while step := next_step(journal, desired):
        ran.append(step)
        assert len(ran) < 8, "it comes to no end"
        journal = committed(journal, desired, step)
    return ran, journal


def there(args: KubesprayClusterArgs) -> Journal:
    return grown(args)


def ran(before: KubesprayClusterArgs, after: KubesprayClusterArgs) -> list[tuple[str, str]]:
    """Playbooks, and what each is limited to or for."""
    found, _ = steps(there(before), wanted(after))
    return [(step["playbook"], step["extra"].get("node") or ":".join(step["limit"])) for step in found]


MORE = changed(nodes=[*DOCUMENT_000.nodes, *WORKERS])
FIVE = [node(f"n{number}", f"192.0.2.{number}", "control_plane", "etcd") for number in range(1, 6)]

ONE_UP: dict[str, tuple[KubesprayClusterArgs, KubesprayClusterArgs, list[tuple[str, str]]]] = {
    "nothing": (MORE, MORE, []),
    "four workers more": (DOCUMENT_000, MORE, [("scale.yml", "w-1:w-2:w-3:w-4")]),
    "four workers less": (MORE, DOCUMENT_000, [("remove-node.yml", "w-1,w-2,w-3,w-4")]),
    "one comes, one goes": (
        changed(nodes=[*DOCUMENT_000.nodes, WORKERS[0]]),
        changed(nodes=[*DOCUMENT_000.nodes, WORKERS[1]]),
        [("scale.yml", "w-2"), ("remove-node.yml", "w-1")],
    ),
    "a label": (DOCUMENT_000, with_node("mi300x-austin-1", labels={"a": "b"}), [("scale.yml", "mi300x-austin-1")]),
    "a label of the control plane": (
        DOCUMENT_000,
        with_node("control-austin-1", labels={"a": "b"}),
        [("cluster.yml", "")],
    ),
    "a new control plane": (
        DOCUMENT_000,
        changed(nodes=[*DOCUMENT_000.nodes, node("c", "192.0.2.60", "control_plane"), WORKERS[0]]),
        [("cluster.yml", "")],
    ),
    "members of etcd less": (
        changed(nodes=FIVE),
        changed(nodes=FIVE[:3]),
        # The remaining members are reconfigured: docs/operations/nodes.md, "Removing an etcd node".
        [("remove-node.yml", "n4,n5"), ("cluster.yml", "")],
    ),
    "a dead member and a living one less": (
        changed(nodes=FIVE),
        changed(nodes=FIVE[:3], lost=["n5"]),
        [("remove-node.yml", "n5"), ("remove-node.yml", "n4"), ("cluster.yml", "")],
    ),
    "a dead member replaced by a spare": (
        changed(nodes=FIVE[:3]),
        changed(nodes=[*FIVE[:2], FIVE[3]], lost=["n3"]),
        [("remove-node.yml", "n3"), ("cluster.yml", "")],
    ),
    "a dead member reinstalled": (
        changed(nodes=FIVE[:3]),
        changed(nodes=[*FIVE[:2], dataclasses.replace(FIVE[2], generation=2)]),
        [("remove-node.yml", "n3"), ("cluster.yml", "")],
    ),
    "the first one dead": (
        changed(nodes=FIVE[:3]),
        changed(nodes=FIVE[1:4], lost=["n1"]),
        [("recover-control-plane.yml", "n2:n3"), ("cluster.yml", "")],
    ),
    "two of three dead": (
        changed(nodes=FIVE[:3]),
        changed(nodes=[FIVE[0], *FIVE[3:]], lost=["n2", "n3"]),
        [("recover-control-plane.yml", "n1"), ("cluster.yml", "")],
    ),
    "a worker reinstalled": (
        changed(nodes=[*DOCUMENT_000.nodes, WORKERS[0]]),
        changed(nodes=[*DOCUMENT_000.nodes, dataclasses.replace(WORKERS[0], generation=2)]),
        [("scale.yml", "w-1")],
    ),
    "a minor of Kubernetes": (
        changed(kubernetes_version="1.34.3"),
        DOCUMENT_000,
        [("upgrade-cluster.yml", "")],
    ),
    "a minor and two workers": (
        changed(kubernetes_version="1.34.3"),
        changed(nodes=[*DOCUMENT_000.nodes, *WORKERS[:2]]),
        [("upgrade-cluster.yml", ""), ("scale.yml", "w-1:w-2")],
    ),
    "a minor of kubespray": (
        changed(kubespray=Kubespray(version="v2.30.0"), kubernetes_version="1.34.3"),
        changed(kubernetes_version="1.34.3"),
        [("upgrade-cluster.yml", "")],
    ),
    "how long to drain": (DOCUMENT_000, changed(drain_seconds=60), []),
    "a lost worker and another": (
        changed(nodes=[*DOCUMENT_000.nodes, *WORKERS[:2]]),
        changed(lost=["w-1"]),
        [("remove-node.yml", "w-2"), ("remove-node.yml", "w-1")],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), ONE_UP.values(), ids=list(ONE_UP))
def test_what_one_up_runs(
    before: KubesprayClusterArgs, after: KubesprayClusterArgs, expected: list[tuple[str, str]]
) -> None:
    assert not [*change_problems(after, grown(before))]
    assert ran(before, after) == expected


def test_the_first_up_is_one_run() -> None:
    found, journal = steps(NO_CLUSTER, wanted(DOCUMENT_000))
    assert [step["playbook"] for step in found] == ["cluster.yml"]
    assert journal["members"] == wanted(DOCUMENT_000)["nodes"]


def test_a_changed_setting_is_one_run_for_all_with_new_workers_in_it() -> None:
    assert ran(DOCUMENT_000, dataclasses.replace(MORE, strict_arp=True)) == [("cluster.yml", "")]


def test_what_goes_is_still_in_the_inventory_while_others_come() -> None:
    before = changed(nodes=[*DOCUMENT_000.nodes, WORKERS[0]])
    after = changed(nodes=[*DOCUMENT_000.nodes, WORKERS[1]])
    scale, remove = steps(there(before), wanted(after))[0]
    assert "w-1" in scale["inventory"]
    assert "w-1" in remove["inventory"]


def test_what_is_to_come_is_no_part_of_an_upgrade() -> None:
    before = changed(kubernetes_version="1.34.3", nodes=[*DOCUMENT_000.nodes, WORKERS[0]])
    after = changed(nodes=[*DOCUMENT_000.nodes, WORKERS[1]])
    upgrade = steps(there(before), wanted(after))[0][0]
    assert "w-2" not in upgrade["inventory"]
    assert "w-1" in upgrade["inventory"]
    assert upgrade["extra"] == {
        "drain_timeout": "21600s",
        "drain_retries": 0,
        "drain_grace_period": 21600,
        "serial": "20%",
    }


def test_members_of_etcd_are_given_time_to_join() -> None:
    found, _ = steps(there(changed(nodes=FIVE[:3])), wanted(changed(nodes=FIVE)))
    assert [step["extra"] for step in found] == [{"etcd_retries": 10, "upgrade_cluster_setup": True}]


def executed(before: KubesprayClusterArgs, after: KubesprayClusterArgs) -> list[Step]:
    return steps(there(before), wanted(after))[0]


def test_a_dead_member_is_removed_by_those_that_live_and_replaced_after_that() -> None:
    first, second = executed(changed(nodes=FIVE[:3]), changed(nodes=[*FIVE[:2], FIVE[3]], lost=["n3"]))
    assert list(first["inventory"]) == ["n1", "n2", "n3"]
    assert first["extra"] == {**LOST, "node": "n3", "skip_confirmation": True}
    # kubespray counts the members of its inventory, and refuses an even number unless a variable allows it.
    assert list(second["inventory"]) == ["n1", "n2", "n4"]
    assert second["extra"] == {"upgrade_cluster_setup": True, "etcd_retries": 10}


def test_an_even_number_of_members_in_between_is_let_pass() -> None:
    dead, living, last = executed(changed(nodes=FIVE), changed(nodes=FIVE[:3], lost=["n5"]))
    assert "ignore_assert_errors" not in dead["extra"]
    assert list(living["inventory"]) == ["n1", "n2", "n3", "n4"]
    assert living["extra"]["ignore_assert_errors"] is True
    assert last["extra"] == {"upgrade_cluster_setup": True}


def test_what_recovers_has_the_survivors_first_and_the_dead_in_their_groups() -> None:
    recover, last = executed(changed(nodes=FIVE[:3]), changed(nodes=FIVE[1:4], lost=["n1"]))
    groups = hosts(recover["inventory"], recover["broken"])["all"]["children"]
    assert {group: list(found["hosts"]) for group, found in groups.items()} == {
        "kube_control_plane": ["n2", "n3"],
        "etcd": ["n2", "n3"],
        "kube_node": [],
        "broken_kube_control_plane": ["n1"],
        "broken_etcd": ["n1"],
    }
    assert recover["extra"] == {"etcd_retries": 10, "upgrade_cluster_setup": True, "ignore_assert_errors": True}
    assert list(last["inventory"]) == ["n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (changed(nodes=FIVE[3:], lost=["n1", "n2", "n3"]), "no node of kube_control_plane is left"),
        (
            changed(nodes=FIVE[1:4]),
            "n1 is the first node of kube_control_plane, which kubespray cannot remove while it runs",
        ),
        (changed(nodes=[dataclasses.replace(FIVE[0], generation=2), *FIVE[1:3]]), "move it to the end of the list"),
        (changed(nodes=[FIVE[0], *FIVE[3:]], lost=["n2"]), "etcd gains n4, n5 and loses n3"),
    ],
    ids=["nobody left", "the first one lives", "the first one reinstalled", "one of two is not dead"],
)
def test_members_that_cannot_be_replaced_like_that(after: KubesprayClusterArgs, said: str) -> None:
    problems = impossible_changes(there(changed(nodes=FIVE[:3])), wanted(after))
    assert said in "\n".join(map(str, problems))


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({"proxy_mode": "nftables"}, {"upgrade_cluster_setup": True}),
        ({"strict_arp": True}, {"upgrade_cluster_setup": True}),
        ({"variables": {"k8s_cluster": {"kube_apiserver_request_timeout": "2m0s"}}}, {"upgrade_cluster_setup": True}),
        ({"variables": {"kube_control_plane": {"kube_oidc_url": "https://a"}}}, {"upgrade_cluster_setup": True}),
        ({"variables": {"all": {"containerd_max_container_log_line_size": 1}}}, {}),
        ({"variables": {"all": {"kube_scheduler_profiles": []}}}, {}),
        ({"auto_renew_certificates": False}, {}),
        ({"calico": Calico(mtu=9000)}, {}),
        ({"api_server": "k8s.example"}, {}),
    ],
    ids=str,
)
def test_a_setting_is_applied_by_what_applies_it(changes: dict[str, Any], extra: dict[str, Any]) -> None:
    (step,) = executed(DOCUMENT_000, changed(**changes))
    assert (step["playbook"], step["extra"]) == ("cluster.yml", extra)
    # And back again.
    (step,) = executed(changed(**changes), DOCUMENT_000)
    assert (step["playbook"], step["extra"]) == ("cluster.yml", extra)


def test_a_variable_of_one_control_plane_is_applied_too() -> None:
    after = with_node("control-austin-2", variables={"kube_apiserver_request_timeout": "2m0s"})
    (step,) = executed(DOCUMENT_000, after)
    assert step["extra"] == {"upgrade_cluster_setup": True}


def test_where_it_is_not_known_what_the_nodes_have_everything_is_applied() -> None:
    """As in a journal of an older driver, which said of settings that they were applied when they were not."""
    journal = there(DOCUMENT_000)
    del journal["variables"]
    (step,) = steps(journal, wanted(DOCUMENT_000))[0]
    assert (step["playbook"], step["extra"]) == ("cluster.yml", {"upgrade_cluster_setup": True})


def test_what_no_playbook_applies_is_left_to_a_person() -> None:
    assert not [*left_by_hand({"auto_renew_certificates": True, "kube_proxy_mode": "nftables"})]
    (line,) = left_by_hand({"auto_renew_certificates": False})
    assert line.endswith("run on each control plane node: systemctl disable --now k8s-certs-renew.timer")


def test_removals_confirm_themselves_and_wait_for_jobs() -> None:
    (step,) = removals(there(MORE), wanted(changed(drain_seconds=7200, drain_grace_seconds=-1)))
    assert step["extra"] == {
        "node": "w-1,w-2,w-3,w-4",
        "skip_confirmation": True,
        "drain_timeout": "7200s",
        "drain_retries": 0,
        "drain_grace_period": "{{ 120 if 'drain' in (result | default({})).cmd | default([]) else -1 }}",
    }


def test_a_lost_node_is_not_reached_for() -> None:
    args = changed(lost=[each.name for each in WORKERS])
    (step,) = removals(there(MORE), wanted(args))
    assert step["extra"]["reset_nodes"] is False
    assert step["extra"]["allow_ungraceful_removal"] is True
    assert (step["extra"]["drain_timeout"], step["extra"]["drain_retries"]) == ("1s", 0)


def test_a_node_that_a_broken_run_began_with_is_removed_too() -> None:
    journal = there(DOCUMENT_000) | {"touched": {"w-1": wanted(MORE)["nodes"]["w-1"]}}
    found, after = steps(journal, wanted(DOCUMENT_000))  # type: ignore[arg-type]
    assert [step["extra"]["node"] for step in found] == ["w-1"]
    assert after["touched"] == {}


def test_nothing_is_changed_in_place() -> None:
    journal, desired = there(MORE), wanted(DOCUMENT_000)
    before = copy.deepcopy((journal, desired))
    steps(journal, desired)
    assert (journal, desired) == before


@pytest.mark.parametrize("version", ["1.35", "v1", "latest", "1.35.4-rc.1", ""])
def test_no_version(version: str) -> None:
    with pytest.raises(ValueError, match="no major, minor and patch"):
        numbers(version)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"variables": {"k8s_cluster": {"kube_service_addresses": "10.96.0.0/16"}}}, "variables.k8s_cluster."),
        ({"variables": {"all": {"cluster_name": "gpu.local"}}}, "variables.all.cluster_name: gpu.local"),
        ({"variables": {"all": {"kube_network_node_prefix": 25}}}, "variables.all.kube_network_node_prefix: 25"),
        ({"network_plugin": "cilium"}, "network_plugin: cilium"),
        ({"container_manager": "crio"}, "container_manager: crio"),
        ({"etcd_deployment": "kubeadm"}, "etcd_deployment: kubeadm"),
    ],
    ids=str,
)
def test_what_is_fixed_when_a_cluster_is_made_is_refused_later(changes: dict[str, Any], place: str) -> None:
    _, journal = steps(NO_CLUSTER, wanted(DOCUMENT_000))
    after = changed(**changes)
    (problem,) = change_problems(after, journal)
    assert str(problem).startswith(place)
    assert problem.code == "immutable-variable"
    # What is recorded is what the cluster was made with, also after other changes; nothing is refused before that.
    assert not impossible_changes(NO_CLUSTER, wanted(after))
    (back,) = change_problems(DOCUMENT_000, steps(NO_CLUSTER, wanted(after))[1])
    assert "restore " in str(back)


def test_what_is_written_out_as_it_was_by_default_is_no_change() -> None:
    _, journal = steps(NO_CLUSTER, wanted(DOCUMENT_000))
    same = {
        "kube_network_node_prefix": "24",
        "kube_pods_subnet": "10.233.64.0/18",
        "kube_pods_subnet_ipv6": "fd00::/64",
    }
    assert not [*change_problems(changed(variables={"k8s_cluster": same}), journal)]


def test_the_defaults_of_what_is_immutable_are_those_on_record() -> None:
    assert {f"{name}: {value}" for name, value in IMMUTABLE.items()} == {fact.text for fact in IMMUTABLES}


# -- any way from one cluster to another ------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[KubesprayClusterArgs]:
    """A cluster, and what is wanted of it by and by: workers that come, go and change."""
    args = draw(clusters())
    found = [args]
    for number in range(draw(st.integers(1, 4))):
        kept = [each for each in args.nodes if "worker" not in each.roles or len(each.roles) > 1 or draw(st.booleans())]
        kept = [
            dataclasses.replace(each, labels={"round": str(number)}) if draw(st.booleans()) else each for each in kept
        ]
        new = [node(f"new-{number}-{n}", f"203.0.113.{10 * number + n}") for n in range(draw(st.integers(0, 3)))]
        args = dataclasses.replace(args, nodes=[*kept, *new])
        found.append(args)
    return found


@given(history=histories())
def test_whatever_is_wanted_by_and_by_is_there_in_the_end(history: list[KubesprayClusterArgs]) -> None:
    journal: Journal = NO_CLUSTER
    for args in history:
        desired = wanted(args)
        assert impossible_changes(journal, desired) == []
        found, journal = steps(journal, desired)
        assert journal["members"] == desired["nodes"]
        assert list(journal["members"]) == list(desired["nodes"])
        playbooks = [step["playbook"] for step in found]
        assert playbooks.count("scale.yml") <= 1
        assert playbooks.count("remove-node.yml") <= 1
        assert next_step(journal, desired) is None
        assert removals(journal, desired) == []


@given(history=histories(), data=st.data())
def test_broken_off_anywhere_it_comes_to_the_same(history: list[KubesprayClusterArgs], data: st.DataObject) -> None:
    """A run that fails commits nothing, but nodes that it began with."""
    journal: Journal = NO_CLUSTER
    for args in history:
        desired = wanted(args)
        step = next_step(journal, desired)
        if step and data.draw(st.booleans()):
            begun = {name: desired["nodes"][name] for name in step["brings"] if name not in journal["members"]}
            journal = journal | {"touched": journal["touched"] | begun}  # type: ignore[assignment]
            continue
        _, journal = steps(journal, desired)
    _, journal = steps(journal, wanted(history[-1]))
    assert journal["members"] == wanted(history[-1])["nodes"]
    assert journal["touched"] == {}


@given(history=histories())
def test_every_inventory_has_what_is_in_the_cluster(history: list[KubesprayClusterArgs]) -> None:
    """kubespray rewrites lists of peers from its inventory: a member that is missing there would be cut off."""
    journal: Journal = NO_CLUSTER
    for args in history:
        desired: Any = wanted(args)
        while step := next_step(journal, desired):
            assert set(journal["members"]) <= set(step["inventory"])
            journal = committed(journal, desired, step)
        _, journal = steps(journal, desired)
