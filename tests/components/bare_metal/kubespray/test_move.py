"""Move of a cluster's journal between two machines that run kubespray; both are folders of this machine.

tests/e2e/test_kubespray.py moves one through Pulumi's engine to hosts of its own.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs
from gpufleet.bare_metal.kubespray.cluster import hand_over_input, node_input
from tests.components.bare_metal.kubespray.runs import HERE, Runner, local_node

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def old(tmp_path: pathlib.Path) -> Runner:
    """The machine that runs kubespray of a cluster that lives."""
    nodes = [local_node(tmp_path / "hosts", "cp-1", "control_plane", "etcd"), local_node(tmp_path / "hosts", "w-1")]
    runner = Runner(KubesprayClusterArgs(cluster="c", directory=str(tmp_path / "old"), kubespray=HERE, nodes=nodes))
    assert runner.install().code == 0
    runner.identity = runner.call("enroll").out.strip()
    runner.entrust("KEY", registry_password="hunter2")
    ended = runner.converge()
    assert ended.code == 0, ended.err
    return runner


@pytest.fixture
def new(old: Runner, tmp_path: pathlib.Path) -> Runner:
    """Another machine, with kubespray and nothing else."""
    runner = Runner(dataclasses.replace(old.args, directory=str(tmp_path / "new")))
    assert runner.install().code == 0
    runner.entrusted, runner.identity = old.entrusted, old.identity
    return runner


def moved(source: Runner, target: Runner) -> str:
    """Moves the journal, and returns the identity that the new machine knows the cluster by."""
    packed = source.call("hand-over", hand_over_input(target.args))
    assert packed.code == 0, packed.err
    # A longer line would block pulumi-command.
    assert max(map(len, packed.out.splitlines())) < 200
    adopted = target.call("adopt", packed.out)
    assert adopted.code == 0, adopted.err
    return adopted.out.strip()


def test_the_new_machine_goes_on_where_the_old_one_ended(old: Runner, new: Runner, tmp_path: pathlib.Path) -> None:
    kubeconfig = old.kubeconfig().out
    assert moved(old, new) == old.identity
    assert new.entrust("KEY", registry_password="hunter2").out.strip() == old.entrusted
    assert new.converge().code == 0
    # Neither a run for what is there, nor a new certificate.
    assert new.kubeconfig().out == kubeconfig
    assert new.calls() == []
    ended = new.converge(nodes=[*new.args.nodes, local_node(tmp_path / "hosts", "w-2")])
    assert ended.code == 0, ended.err
    assert new.playbooks() == [("scale.yml", "w-2")]


def test_the_old_machine_changes_the_cluster_no_more(old: Runner, new: Runner, tmp_path: pathlib.Path) -> None:
    moved(old, new)
    before = old.playbooks()
    node = node_input(old.args.nodes[1])
    # Pulumi deletes the old machine's resources, and runs these.
    for command, payload in (("remove", node), ("reset", "")):
        ended = old.call(command, payload)
        assert ended.code == 0
        assert "the journal of this cluster has moved to the machine that runs Pulumi; nothing to do here" in ended.err
    refused = [old.converge(), old.kubeconfig(), old.entrust("KEY"), old.call("enroll"), old.call("enrolled")]
    for ended in refused:
        assert ended.code == 1
        assert "set runOn to that machine, or movedFrom to move the journal back" in ended.err
    assert old.playbooks() == before
    assert (tmp_path / "hosts/cp-1/etc/kubernetes/nodes/w-1").exists()


def test_a_move_that_was_interrupted_is_repeated_and_a_move_that_ended_is_not(
    old: Runner, new: Runner, tmp_path: pathlib.Path
) -> None:
    old.call("hand-over", hand_over_input(new.args))
    packed = old.call("hand-over", hand_over_input(new.args))
    assert new.call("adopt", packed.out).code == 0
    # Since then the new machine has learned more than the old one knew.
    assert new.converge(nodes=[*new.args.nodes, local_node(tmp_path / "hosts", "w-2")]).code == 0
    assert new.call("adopt", packed.out).out.strip() == old.identity
    assert new.members() == ["cp-1", "w-1", "w-2"]
    # And it goes back the same way.
    assert moved(new, old) == old.identity
    assert old.members() == ["cp-1", "w-1", "w-2"]
    assert old.converge(nodes=new.args.nodes).code == 0


def test_a_journal_is_not_given_to_a_second_machine(old: Runner, new: Runner) -> None:
    """It would be an older one than the first machine has by now."""
    moved(old, new)
    ended = old.call("hand-over", json.dumps({"to": "bastion (192.0.2.9)"}))
    assert ended.code == 1
    assert "the journal has moved to the machine that runs Pulumi; set movedFrom to that machine" in ended.err


def test_without_its_journal_nothing_is_done_to_a_cluster(old: Runner, new: Runner) -> None:
    """Another machine that nobody moved the journal to, as an ephemeral agent is on its second run."""
    for ended in (new.call("enrolled"), new.converge()):
        assert ended.code == 1
        assert "has no journal of this cluster, on " in ended.err
        assert "set movedFrom to the machine that ran kubespray before" in ended.err
    assert new.calls() == []
    ended = new.call("hand-over", hand_over_input(old.args))
    assert (ended.code, "has no journal to move" in ended.err) == (1, True)
    new.call("enroll")
    ended = new.converge()
    assert (ended.code, "has the journal of another cluster" in ended.err) == (1, True)


def test_a_journal_of_another_cluster_is_not_overwritten(old: Runner, new: Runner) -> None:
    new.identity = new.call("enroll").out.strip()
    assert new.converge().code == 0
    packed = old.call("hand-over", hand_over_input(new.args))
    ended = new.call("adopt", packed.out)
    assert (ended.code, "has the journal of another cluster of this name" in ended.err) == (1, True)
    assert json.loads((new.folder / "journal.json").read_text())["identity"] == new.identity


def test_a_runner_that_is_deleted_after_the_job_keeps_no_journal(
    old: Runner, new: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = old.call("hand-over", hand_over_input(new.args)).out
    monkeypatch.setenv("RUNNER_ENVIRONMENT", "github-hosted")
    for ended in (new.call("enroll"), new.call("adopt", packed)):
        assert ended.code == 1
        assert "GitHub deletes this runner after the job; set runOn to a bastion" in ended.err
    monkeypatch.setenv("RUNNER_ENVIRONMENT", "self-hosted")
    assert new.call("adopt", packed).code == 0


def test_a_machine_that_never_ran_kubespray_says_where_the_journal_may_be(old: Runner, tmp_path: pathlib.Path) -> None:
    """An ephemeral agent, where nothing is left of the last run."""
    agent = Runner(dataclasses.replace(old.args, directory=str(tmp_path / "agent")))
    ended = agent.converge()
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.strip() == (
        "kubespray's journal of c is not on this machine; run Pulumi where it is, or move it to a bastion (movedFrom)"
    )
