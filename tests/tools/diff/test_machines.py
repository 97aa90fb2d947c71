"""A series of pull requests to stacks that do something on machines, and what `gpufleet diff` says of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpufleet_tools.diff.evaluation import EvaluatedResource
from gpufleet_tools.diff.machines import refused_kubespray_changes, runs
from tests.conftest import ROOT, Generated
from tests.tools.diff import test_difference as test_diff
from tests.tools.diff import test_eks as test_diff_eks
from tests.tools.diff.pull_requests import SERIES, Edit, PullRequest, Repository, check, compare

A10, MI300 = "Pulumi.a10.yaml", "Pulumi.mi300.yaml"
STACKS = {
    "a10": (ROOT / "examples/a10" / A10).read_text(),
    "mi300": (ROOT / MI300).read_text(),
}

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHBsYWNlaG9sZGVyLWF1c3Rpbi0zLi4uLi4uLi4uLi4u"
WORKER = f"          mi300x-austin-3: {{address: 192.0.2.13, site: austin, hostKeys: [{KEY}]}}\n"
ADDED: Edit = (MI300, "  gpu-runners:projects:\n", f"{WORKER}  gpu-runners:projects:\n")
REMOVED: Edit = (MI300, WORKER, "")
NO_NVKIND: Edit = (A10, "nvkind: true", "nvkind: false")
TO_118: Edit = (A10, "1.17.8-1", "1.18.0-1")
PLACE = "      etcdDeployment: host\n"
BASTION = f"{{kind: bastion, address: 192.0.2.8, hostKeys: [{KEY}]}}"
ANOTHER = BASTION.replace("192.0.2.8", "192.0.2.9")
EXISTING: Edit = (MI300, "    kubeconfig: {kind: kubespray}\n", "    kubeconfig: {kind: context, context: mi300}\n")
SECTION = STACKS["mi300"][STACKS["mi300"].index("    kubespray:\n") : STACKS["mi300"].index("    nodePools:\n")]
FIRST = STACKS["mi300"][STACKS["mi300"].index("          mi300x-austin-1:") :]
FIRST = FIRST[: FIRST.index("          mi300x-austin-2:")]

PULL_REQUESTS: dict[str, PullRequest] = {
    "bump-the-toolkit-to-1.18": PullRequest(
        edits=(TO_118,),
        code=2,
        headline="refused: invalid",
        invalid="Pulumi.a10.yaml:13: cluster.nvidiaContainerToolkit.version: 1.18.0-1 uses jit-cdi by default, as does"
        " every version from 1.18.0, but nvkind requires the legacy runtime; use 1.17.8-1",
    ),
    "bump-the-toolkit-where-nothing-needs-the-legacy-runtime": PullRequest(
        first=(NO_NVKIND,),
        edits=(TO_118,),
        headline="changes for users",
        users="2 labels changed",
        resources="3 updated; NVIDIA's container toolkit 1.17.8-1 → 1.18.0-1 on a10-1-1, a10-1-2 and a10-2-1,"
        " one after the other: containers get GPUs through jit-cdi; software that requires the legacy runtime stops"
        " working",
    ),
    "take-the-toolkit-back": PullRequest(
        first=(NO_NVKIND, TO_118),
        edits=((A10, "1.18.0-1", "1.17.8-1"),),
        headline="changes for users",
        users="2 labels changed",
        resources="3 updated; NVIDIA's container toolkit 1.18.0-1 → 1.17.8-1 on a10-1-1, a10-1-2 and a10-2-1,"
        " one after the other: containers get GPUs through the legacy runtime again",
    ),
    "enable-cdi-in-docker": PullRequest(
        first=(NO_NVKIND,),
        edits=((A10, "runtime: docker}", "runtime: docker, cdi: true}"),),
        headline="changes for users",
        users="2 labels changed",
        resources="3 updated; docker restarts on a10-1-1, a10-1-2 and a10-2-1, one after the other; a machine with"
        " running containers is refused",
    ),
    "have-machines-verified": PullRequest(
        edits=((A10, "runtime: docker}", 'runtime: docker, checked: "2026-12-01"}'),),
        resources="3 updated",
    ),
    "add-a-worker": PullRequest(
        edits=(ADDED,),
        resources="1 updated, 1 created; pool mi300x: 3 nodes with 24 GPUs → 4 nodes with 32 GPUs; kubespray runs"
        " scale.yml for mi300x-austin-3",
        says=("- Command mi300-converge updated", '+     "mi300x-austin-3": {'),
    ),
    "remove-a-worker": PullRequest(
        first=(ADDED,),
        edits=(REMOVED,),
        resources="1 deleted, 1 updated; pool mi300x: 4 nodes with 32 GPUs → 3 nodes with 24 GPUs; kubespray runs"
        " remove-node.yml for mi300x-austin-3: drained and reset first",
    ),
    "remove-a-worker-that-is-dead": PullRequest(
        first=(ADDED,),
        edits=(REMOVED, (MI300, "      etcdDeployment: host\n", "      lost: [mi300x-austin-3]\n")),
        resources="1 deleted, 1 updated; pool mi300x: 4 nodes with 32 GPUs → 3 nodes with 24 GPUs; kubespray runs"
        " remove-node.yml for mi300x-austin-3: without connecting to it",
    ),
    "remove-the-first-of-the-control-plane": PullRequest(
        edits=((MI300, FIRST, ""), (MI300, "roles: [control_plane, etcd, worker]", "roles: [control_plane, worker]")),
        code=1,
        headline="refused: overcommitted, kubespray",
        refused="overcommitted in mi300, kubespray in mi300 (4)",
        users="1 label changed; no guaranteed job for linux-mi300-gpu-2: other labels can take all of the pool",
        resources="1 deleted, 2 updated; pool mi300x: 3 nodes with 24 GPUs → 2 nodes with 16 GPUs",
        says=("mi300x-austin-1 is the first node of kube_control_plane, which kubespray cannot remove while it runs",),
    ),
    "upgrade-kubernetes": PullRequest(
        first=((MI300, "kubernetesVersion: 1.35.4", "kubernetesVersion: 1.34.6"),),
        edits=((MI300, "kubernetesVersion: 1.34.6", "kubernetesVersion: 1.35.4"),),
        headline="changes for users",
        users="2 labels changed",
        resources="1 updated; kubespray runs upgrade-cluster.yml for mi300x-austin-1, mi300x-austin-2 and"
        " mi300x-santa-clara-1: Kubernetes 1.34.6 → 1.35.4; workers are drained, 20% at a time",
    ),
    "upgrade-kubernetes-by-two": PullRequest(
        first=((MI300, "kubernetesVersion: 1.35.4", "kubernetesVersion: 1.33.1"),),
        edits=((MI300, "kubernetesVersion: 1.33.1", "kubernetesVersion: 1.35.4"),),
        code=1,
        headline="refused: kubespray",
        refused="kubespray in mi300",
        users="2 labels changed",
        resources="1 updated",
        says=("kubernetes: 1.35.4 is more than one minor version after 1.33.1",),
    ),
    "change-the-pods-network": PullRequest(
        edits=(
            (
                MI300,
                "      etcdDeployment: host\n",
                "      etcdDeployment: host\n      variables: {all: {kube_pods_subnet: 10.96.0.0/16}}\n",
            ),
        ),
        code=1,
        headline="refused: kubespray",
        refused="kubespray in mi300",
        resources="1 updated",
        says=("variables.all.kube_pods_subnet: 10.96.0.0/16 differs from 10.233.64.0/18",),
    ),
    "change-the-proxy": PullRequest(
        edits=((MI300, "proxyMode: ipvs", "proxyMode: nftables"),),
        resources="1 updated; kubespray runs cluster.yml for mi300x-austin-1, mi300x-austin-2 and mi300x-santa-clara-1"
        " to apply calico_nftable_mode and kube_proxy_mode: kube-proxy restarts on every node; no node is drained",
    ),
    "run-kubespray-on-a-bastion": PullRequest(
        edits=((MI300, PLACE, f"{PLACE}      runOn: {BASTION}\n      movedFrom: {{kind: here}}\n"),),
        resources="6 deleted, 1 updated, 8 created; kubespray's journal of mi300 moves to bastion (192.0.2.8); nothing"
        " runs on the machines",
    ),
    "run-kubespray-on-another-bastion": PullRequest(
        first=((MI300, PLACE, f"{PLACE}      runOn: {BASTION}\n"),),
        edits=((MI300, f"runOn: {BASTION}", f"runOn: {ANOTHER}\n      movedFrom: {BASTION}"),),
        resources="8 updated, 2 created; kubespray's journal of mi300 moves to bastion (192.0.2.9); nothing runs on the"
        " machines",
    ),
    "end-the-move": PullRequest(
        first=((MI300, PLACE, f"{PLACE}      runOn: {BASTION}\n      movedFrom: {{kind: here}}\n"),),
        edits=((MI300, "      movedFrom: {kind: here}\n", ""),),
        resources="2 deleted, 1 updated",
    ),
    "run-kubespray-on-a-bastion-without-the-journal": PullRequest(
        edits=((MI300, PLACE, f"{PLACE}      runOn: {BASTION}\n      protect: false\n"),),
        code=1,
        headline="refused: protected, kubespray",
        refused="protected in mi300, kubespray in mi300",
        resources="8 deleted, 8 created; not protected from deletion: mi300: protect: false",
        says=("the journal of mi300 is on the old one, so pulumi up would fail; add movedFrom",),
    ),
    "run-kubespray-on-another-bastion-without-the-journal": PullRequest(
        first=((MI300, PLACE, f"{PLACE}      runOn: {BASTION}\n"),),
        edits=((MI300, f"runOn: {BASTION}", f"runOn: {ANOTHER}"),),
        code=1,
        headline="refused: kubespray",
        refused="kubespray in mi300",
        resources="8 updated",
        says=("the journal of mi300 is on the old one, so pulumi up would fail; add movedFrom",),
    ),
    "put-the-journal-in-another-folder": PullRequest(
        edits=((MI300, PLACE, f"{PLACE}      directory: /srv/kubespray\n"),),
        code=1,
        headline="refused: kubespray",
        refused="kubespray in mi300",
        resources="8 updated",
        says=("directory: /srv/kubespray/mi300 has no journal of mi300", "first move ~/.kubespray/mi300 there"),
    ),
    "give-up-protection": PullRequest(
        edits=((MI300, PLACE, f"{PLACE}      protect: false\n"),),
        options=("--allow", "protection-removed"),
        resources="1 updated; not protected from deletion: mi300: protect: false",
    ),
    "a-label-of-a-cluster-without-protection": PullRequest(
        first=((MI300, PLACE, f"{PLACE}      protect: false\n"),),
        edits=((MI300, "proxyMode: ipvs", "proxyMode: iptables"),),
        resources="1 updated; not protected from deletion: mi300: protect: false; kubespray runs cluster.yml for"
        " mi300x-austin-1, mi300x-austin-2 and mi300x-santa-clara-1 to apply kube_proxy_mode: kube-proxy restarts on"
        " every node; no node is drained",
    ),
    "generate-the-cluster-s-key-again": PullRequest(
        first=(
            (
                MI300,
                "  gpu-runners:projects:\n",
                "  gpu-runners:ssh-privateKey: {secure: v1:first}\n  gpu-runners:projects:\n",
            ),
        ),
        edits=((MI300, "v1:first", "v1:second"),),
        resources="1 updated; secret ssh-privateKey is changed",
    ),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("diff-machines") / "repository", STACKS)


@pytest.mark.parametrize("name", PULL_REQUESTS)
def test_pull_request(name: str, repository: Repository) -> None:
    check(name, PULL_REQUESTS[name], repository, {})


@pytest.mark.generated
@pytest.mark.parametrize("name", ["bump-the-toolkit-to-1.18", "add-a-worker"])
def test_the_comment_is_the_golden_one(name: str, repository: Repository, generated: Generated) -> None:
    said = compare(repository, repository.opened(name, PULL_REQUESTS[name]), "--format", "markdown")[1]
    generated(ROOT / f"tests/golden/diff/{name}.md", said)


def test_the_whole_series_is_tried_once() -> None:
    tried = [name for module in (test_diff, test_diff_eks) for name in module.PULL_REQUESTS] + [*PULL_REQUESTS]
    assert len(SERIES) == len(set(SERIES)) == 12
    assert {name: tried.count(name) for name in SERIES} == dict.fromkeys(SERIES, 1)


def converge(stdin: Any) -> list[EvaluatedResource]:
    urn = "urn:pulumi:mi300::gpu-runners::gpu-runners:index:KubesprayCluster$command:local:Command::mi300-converge"
    return [
        EvaluatedResource(
            urn=urn,
            type="command:local:Command",
            name="mi300-converge",
            parent=None,
            kind="resource",
            provider=None,
            opaque=False,
            inputs={"stdin": stdin},
            options={},
        )
    ]


def payload(*workers: str, **other: Any) -> str:
    nodes = {"first": {"roles": ["control_plane", "etcd", "worker"], "variables": {}}}
    nodes |= {name: {"roles": ["worker"], "variables": {}} for name in workers}
    desired = {
        "nodes": nodes,
        "variables": {"all": {}},
        "kubespray": "v2.31.0",
        "kubernetes": "1.35.4",
        "drain_seconds": 60,
        "drain_grace_seconds": 60,
        "upgrade_serial": "20%",
        "lost": [],
    }
    return json.dumps({"desired": desired | other})


MANY = [f"worker-{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (payload("a"), payload("a"), []),
        (payload("a"), payload("a", "b", "c"), ["scale.yml for b and c"]),
        (payload(), payload(*MANY), ["scale.yml for 6 machines"]),
        (payload("a", "b"), payload("a", "c"), ["scale.yml for c", "remove-node.yml for b: drained and reset first"]),
        (
            payload("a", kubernetes="1.34.6"),
            payload("a", "b"),
            [
                "upgrade-cluster.yml for first and a: Kubernetes 1.34.6 → 1.35.4; workers are drained, 20% at a time",
                "scale.yml for b",
            ],
        ),
        (payload("a"), payload("a", variables={"all": {"x": 1}}), ["cluster.yml for first and a to apply x"]),
        # A revision that does not say, or that says something else.
        ("<unknown>", payload("a"), []),
        (payload("a"), None, []),
        ("[]", payload("a"), []),
    ],
)
def test_the_playbooks_follow_from_what_is_told_before_and_after(before: Any, after: Any, expected: list[str]) -> None:
    assert runs(converge(before), converge(after)) == [f"kubespray runs {each}" for each in expected]
    assert refused_kubespray_changes(converge(before), converge(after)) == []


def test_a_cluster_that_comes_runs_nothing_that_can_be_said() -> None:
    assert runs([], converge(payload("a"))) == []


def cluster_on(kind: str) -> list[EvaluatedResource]:
    (made,) = converge(None)
    urn = made.urn.replace("local", kind).replace("-converge", "-cluster")
    inputs = {"create": "~/.kubespray/mi300/run enroll", "delete": "~/.kubespray/mi300/run reset"}
    type_token = f"command:{kind}:Command"
    return [made.model_copy(update={"urn": urn, "type": type_token, "name": "mi300-cluster", "inputs": inputs})]


def test_a_revision_without_the_address_of_the_bastion_says_what_it_knows() -> None:
    """One that an older version of this command evaluates."""
    (refused,) = refused_kubespray_changes(cluster_on("local"), cluster_on("remote"))
    assert refused.startswith("runOn: another machine would run kubespray, but the journal of mi300 is on the old one")
    assert not refused_kubespray_changes(cluster_on("local"), cluster_on("local"))


def test_a_cluster_that_goes_is_reset_and_one_whose_journal_moves_is_not() -> None:
    before = [*cluster_on("local"), *converge(payload("a"))]
    assert runs(before, []) == ["kubespray runs reset.yml for first and a: Kubernetes and the data of etcd are deleted"]
    # The engine asks about that.
    assert refused_kubespray_changes(before, []) == []
    assert runs(before, before) == []
