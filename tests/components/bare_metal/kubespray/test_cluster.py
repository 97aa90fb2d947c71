"""KubesprayCluster: its resources, and which of them a change of its arguments changes."""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs, KubesprayRunner
from gpufleet.bare_metal.kubespray.cluster import KubesprayCluster, sources
from gpufleet.bare_metal.ssh import SshHost
from gpufleet_tools.plan.plan import UNKNOWN, Hidden, Plan, Resource, revealed
from tests.bare_metal import DOCUMENT_000, HOST_KEY, LOGIN, changed, clusters, node, with_node
from tests.recording import on_hosts, recorded, stays_for, the

RUNNER = KubesprayRunner(host=SshHost(name="bastion", address="192.0.2.9", host_keys=[HOST_KEY]), login=LOGIN)
SECRETS = {"registry_password": "hunter2"}


def plan(args: KubesprayClusterArgs = DOCUMENT_000, *, known: bool = False) -> Plan:
    return recorded(lambda: KubesprayCluster("mi300", args, on_hosts()), unknown_outputs=not known)


def commands(found: Plan) -> dict[str, Resource]:
    return {each.name: each for each in found.resources if each.type.endswith(":Command")}


def inputs(found: Plan) -> dict[str, Mapping[str, Any]]:
    return {name: each.inputs for name, each in commands(found).items()}


def differing(before: KubesprayClusterArgs, after: KubesprayClusterArgs) -> dict[str, str]:
    """What the engine would do, derived from the resources before and after."""
    old, new = inputs(plan(before, known=True)), inputs(plan(after, known=True))
    found = dict.fromkeys(old.keys() - new.keys(), "delete") | dict.fromkeys(new.keys() - old.keys(), "create")
    return found | {name: "update" for name in old.keys() & new.keys() if old[name] != new[name]}


def plain(value: Any) -> str:
    """All that is not secret of a value."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {plain(each)}" for key, each in value.items())
    if isinstance(value, list):
        return " ".join(plain(each) for each in value)
    return "" if isinstance(value, Hidden) else str(value)


# -- what there is ----------------------------------------------------------------------------------------------------


def test_every_machine_is_a_resource_of_its_own() -> None:
    assert set(commands(plan())) == {
        "mi300-kubespray",
        "mi300-cluster",
        "mi300-credentials",
        *(f"mi300-node-{each.name}" for each in DOCUMENT_000.nodes),
        "mi300-converge",
        "mi300-kubeconfig",
    }


def test_machines_are_deleted_with_the_cluster_which_is_protected() -> None:
    found = plan()
    cluster = the(found, "Command", "mi300-cluster")
    assert cluster.options["protect"]
    for name, each in commands(found).items():
        assert each.options.get("deletedWith") == (cluster.urn if "-node-" in name else None)
        assert bool(each.options.get("protect")) == (each is cluster)


def test_protection_can_be_given_up() -> None:
    assert "protect" not in the(plan(changed(protect=False)), "Command", "mi300-cluster").options


def test_only_the_cluster_and_its_machines_run_something_when_they_go() -> None:
    ends = {
        name: each.inputs["delete"].rpartition("; exec ")[2]
        for name, each in commands(plan()).items()
        if "delete" in each.inputs
    }
    assert ends.pop("mi300-cluster") == "~/.kubespray/mi300/run reset"
    assert set(ends) == {f"mi300-node-{each.name}" for each in DOCUMENT_000.nodes}
    assert set(ends.values()) == {"~/.kubespray/mi300/run remove"}


def test_the_run_for_all_comes_after_every_machine_and_before_the_kubeconfig() -> None:
    found = plan()
    converge, kubeconfig = the(found, "Command", "mi300-converge"), the(found, "Command", "mi300-kubeconfig")
    needed = stays_for(found, converge)
    assert {each.urn for name, each in commands(found).items() if "-node-" in name} <= needed
    assert the(found, "Command", "mi300-credentials").urn in needed
    assert converge.urn in stays_for(found, kubeconfig)


def test_nothing_is_triggered() -> None:
    """pulumi-command replaces for `triggers`, and a replaced machine would be removed."""
    assert [name for name, each in commands(plan()).items() if "triggers" in each.inputs] == []


def test_no_output_of_a_run_is_put_into_the_environment_of_the_next() -> None:
    assert {each.inputs["addPreviousOutputInEnv"] for each in commands(plan()).values()} == {False}


def test_arguments_that_cannot_be_are_refused_all_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)mi300: cluster: .*\nmi300: proxy_mode: 'x'"):
        plan(changed(cluster="A", proxy_mode="x"))


def test_a_machine_of_its_own_runs_kubespray() -> None:
    found = plan(changed(runner=RUNNER))
    assert {each.type for each in commands(found).values()} == {"command:remote:Command"}
    # pulumi-command holds the whole connection secret.
    keys = {each.inputs["connection"]["hostKey"].value for each in commands(found).values()}
    assert keys == {HOST_KEY}
    assert LOGIN.private_key not in plain([each.inputs for each in commands(found).values()])


# -- what changes -----------------------------------------------------------------------------------------------------

WORKER = "mi300x-austin-1"

CHANGES: dict[str, tuple[KubesprayClusterArgs, dict[str, str]]] = {
    "nothing": (DOCUMENT_000, {}),
    "a worker less": (
        changed(nodes=[each for each in DOCUMENT_000.nodes if each.name != WORKER]),
        {f"mi300-node-{WORKER}": "delete", "mi300-converge": "update"},
    ),
    "two workers more": (
        changed(nodes=[*DOCUMENT_000.nodes, node("a", "192.0.2.70"), node("b", "192.0.2.71")]),
        {"mi300-node-a": "create", "mi300-node-b": "create", "mi300-converge": "update"},
    ),
    "a label": (
        with_node(WORKER, labels={"a": "b"}),
        {f"mi300-node-{WORKER}": "update", "mi300-converge": "update"},
    ),
    "a setting": (changed(strict_arp=True), {"mi300-converge": "update"}),
    "a version": (changed(kubernetes_version="1.35.3"), {"mi300-converge": "update"}),
    "a new kubeconfig": (changed(kubeconfig_generation=2), {"mi300-kubeconfig": "update"}),
    "the way to the API server": (
        changed(api_server="k8s.example"),
        {"mi300-kubeconfig": "update", "mi300-converge": "update"},
    ),
    "a mirror of kubespray": (
        changed(kubespray=dataclasses.replace(DOCUMENT_000.kubespray, url="https://git.example/kubespray")),
        {"mi300-kubespray": "update"},
    ),
    "the key to the machines": (
        changed(login=dataclasses.replace(LOGIN, private_key="another")),
        {"mi300-credentials": "update"},
    ),
}


@pytest.mark.parametrize(("after", "expected"), CHANGES.values(), ids=list(CHANGES))
def test_what_changes_with_what_it_is_told(after: KubesprayClusterArgs, expected: dict[str, str]) -> None:
    assert differing(DOCUMENT_000, after) == expected


@given(args=clusters(), data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_machine_less_is_one_deletion_and_one_list_that_is_shorter(
    args: KubesprayClusterArgs, data: st.DataObject
) -> None:
    workers = [each for each in args.nodes if list(each.roles) == ["worker"]]
    if not workers:
        return
    gone = data.draw(st.sampled_from(workers))
    after = dataclasses.replace(args, nodes=[each for each in args.nodes if each is not gone])
    assert differing(args, after) == {f"mi300-node-{gone.name}": "delete", "mi300-converge": "update"}
    payloads = [json.loads(converge(each)) for each in (args, after)]
    del payloads[0]["desired"]["nodes"][gone.name]
    del payloads[0]["ssh"]["hosts"][gone.name]
    assert payloads[0] == payloads[1]


def converge(args: KubesprayClusterArgs) -> str:
    text: str = the(plan(args, known=True), "Command", "mi300-converge").inputs["stdin"]
    return text


# -- secrets ----------------------------------------------------------------------------------------------------------


def with_secrets() -> KubesprayClusterArgs:
    """A cluster with secret variables of all its hosts, and of one."""
    args = with_node("mi300x-austin-1", secret_variables={"ansible_become_password": "hunter2"})
    return dataclasses.replace(args, secret_variables=SECRETS)


def test_a_secret_of_one_host_goes_with_the_others_and_changes_nothing_that_is_seen() -> None:
    secrets = commands(plan(with_secrets(), known=True))
    plain_ones = commands(plan(changed(secret_variables=SECRETS), known=True))
    assert (
        "ansible_become_password"
        in json.loads(revealed(secrets["mi300-credentials"].inputs["stdin"]))["hosts"]["mi300x-austin-1"]
    )
    node = "mi300-node-mi300x-austin-1"
    assert secrets[node].inputs == plain_ones[node].inputs


@pytest.mark.parametrize("runner", [None, RUNNER], ids=["here", "bastion"])
def test_no_secret_is_in_plain_text(runner: KubesprayRunner | None) -> None:
    found = plan(dataclasses.replace(with_secrets(), runner=runner), known=True)
    text = plain([each.inputs for each in found.resources])
    assert "control-austin-1" in text
    assert "hunter2" not in text
    assert "OPENSSH" not in text


def test_secrets_are_in_no_command_line() -> None:
    for each in commands(plan(with_secrets())).values():
        for what in ("create", "update", "delete"):
            assert "hunter2" not in str(each.inputs.get(what))


def test_the_kubeconfig_is_secret_and_is_not_logged() -> None:
    found = plan()
    kubeconfig = the(found, "Command", "mi300-kubeconfig")
    assert kubeconfig.inputs["logging"] == "none"
    outputs = the(found, "KubesprayCluster").outputs
    assert outputs is not None
    assert outputs["kubeconfig"] is UNKNOWN or isinstance(outputs["kubeconfig"], Hidden)


def test_without_secrets_there_is_nothing_to_entrust() -> None:
    login = dataclasses.replace(LOGIN, private_key=None, agent_socket="/run/agent")
    assert "mi300-credentials" not in commands(plan(changed(login=login)))


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_what_is_sent_imports_nothing_that_is_not_there() -> None:
    """Python's own modules, each other, and PyYAML, which Ansible brings."""
    files = sources()
    ours = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    for text in files.values():
        for statement in ast.walk(ast.parse(text)):
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            if isinstance(statement, ast.ImportFrom):
                module = statement.module or ""
                within = [f"{module}.{alias.name}" for alias in statement.names]
                names = within if module.startswith("gpufleet") and within[0] in ours else [module]
            for name in names:
                assert name in ours or name.partition(".")[0] in {*sys.stdlib_module_names, "yaml"}, name
