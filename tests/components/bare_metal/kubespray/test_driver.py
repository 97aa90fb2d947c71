"""kubespray's driver with real Ansible and a stand-in for kubespray; hosts are folders of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import yaml

from gpufleet.bare_metal.kubespray.args import Kubespray, KubesprayClusterArgs, KubesprayNode
from gpufleet.bare_metal.kubespray.cluster import node_input
from tests.components.bare_metal.kubespray.runs import HERE, STAND_IN, VENV, Runner, local_node, marker
from tests.conftest import Outcome

pytestmark = [pytest.mark.process, pytest.mark.slow]

MakeNode = Callable[..., KubesprayNode]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("kubespray")


@pytest.fixture(scope="module")
def cluster(root: pathlib.Path) -> Runner:
    """A cluster of two machines, made once. Each test adds what it needs, and may leave it."""
    nodes = [local_node(root / "hosts", "cp-1", "control_plane", "etcd"), local_node(root / "hosts", "w-1")]
    runner = Runner(KubesprayClusterArgs(cluster="c", directory=str(root / "runner"), kubespray=HERE, nodes=nodes))
    assert runner.install().code == 0
    assert runner.call("enroll").out.strip()
    ended = runner.converge()
    assert ended.code == 0, ended.err
    assert runner.playbooks() == [("cluster.yml", "")]
    return runner


@pytest.fixture
def new(cluster: Runner, root: pathlib.Path) -> Iterator[MakeNode]:
    """Makes a worker that no other test has. What the test leaves running is awaited."""

    def make(name: str, **further: object) -> KubesprayNode:
        (root / "hosts" / name / "etc/kubernetes").mkdir(parents=True, exist_ok=True)
        return local_node(root / "hosts", name, **further)

    (cluster.folder / "calls").unlink(missing_ok=True)
    yield make
    for left in (root / "hosts").glob("*/etc/kubernetes/stand-in-*"):
        left.unlink()
    assert cluster.converge().code == 0


def first_line(process: subprocess.Popen[str]) -> str:
    """What a run says first, waited for since starting Python takes seconds on a busy machine."""
    assert process.stderr
    assert select.select([process.stderr], [], [], 120)[0], "it says nothing"
    return process.stderr.readline()


# -- what ends well ---------------------------------------------------------------------------------------------------


def test_nothing_to_do_runs_nothing(cluster: Runner, new: MakeNode) -> None:
    ended = cluster.converge()
    assert (ended.code, cluster.calls()) == (0, [])


def test_what_lies_about_is_readable_for_its_owner_alone(cluster: Runner, new: MakeNode) -> None:
    assert cluster.folder.stat().st_mode & 0o077 == 0
    for file in ("journal.json", "desired.json", "inventory/hosts.yaml", "inventory/artifacts/admin.conf"):
        assert (cluster.folder / file).stat().st_mode & 0o077 == 0


def test_facts_come_before_a_run_that_is_limited_and_lie_in_the_clusters_own_folder(
    cluster: Runner, new: MakeNode
) -> None:
    ended = cluster.converge(nodes=[*cluster.args.nodes, new("facts-1"), new("facts-2", labels={"a": "b"})])
    assert ended.code == 0, ended.err
    assert [(call["playbook"], call["limit"]) for call in cluster.calls()] == [
        ("playbooks/facts.yml", ""),
        ("scale.yml", "facts-1:facts-2"),
    ]
    assert {"facts-1", "facts-2"} <= {file.name for file in (cluster.folder / "facts").iterdir()}
    assert not pathlib.Path("/tmp/facts-1").exists()


def test_removed_nodes_are_drained_in_one_run_that_asks_nobody(
    cluster: Runner, new: MakeNode, root: pathlib.Path
) -> None:
    kept = cluster.args.nodes
    assert cluster.converge(nodes=[*kept, new("gone-1"), new("gone-2")], drain_seconds=7200).code == 0
    (cluster.folder / "calls").unlink()
    first, *removals = cluster.remove("gone-1", "gone-2")
    assert (first.code, [each.code for each in removals]) == (0, [0, 0])
    assert cluster.playbooks() == [("remove-node.yml", "gone-1,gone-2")]
    # One attempt of 7200 s; kubespray then looks for the node's volumes every 120 s, not every 6 hours.
    assert [each for each in cluster.drains() if each["node"].startswith("gone-")] == [
        {"node": name, "drain": "drain --grace-period 21600 --timeout 7200s", "retries": 0, "pause": "120"}
        for name in ("gone-1", "gone-2")
    ]
    assert "gone-1" not in cluster.members()
    assert not (root / "hosts/gone-1/etc/kubernetes").exists()
    assert not (root / "hosts/cp-1/etc/kubernetes/nodes/gone-1").exists()


def test_a_lost_node_is_waited_for_a_second(cluster: Runner, new: MakeNode) -> None:
    kept = cluster.args.nodes
    assert cluster.converge(nodes=[*kept, new("lost-1")]).code == 0
    assert [each.code for each in cluster.remove("lost-1", lost=["lost-1"])] == [0, 0]
    assert [(each["drain"], each["retries"]) for each in cluster.drains() if each["node"] == "lost-1"] == [
        ("drain --grace-period 0 --timeout 1s", 0)
    ]


def test_a_node_that_is_still_wanted_is_not_removed(cluster: Runner, new: MakeNode) -> None:
    """Its resource may be deleted with others that are protected left out, or because its provider changes."""
    ended = cluster.call("remove", json.dumps({"node": "w-1"}))
    assert (ended.code, cluster.calls()) == (0, [])
    assert "w-1 is still in the list of nodes; not removed" in ended.err


def test_the_kubeconfig_stays_until_another_is_asked_for(cluster: Runner, new: MakeNode) -> None:
    first = cluster.kubeconfig().out
    assert yaml.safe_load(first)["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert cluster.converge(variables={"all": {"kubelet_max_pods": 120}}).code == 0
    # kubespray has rewritten it meanwhile; a run that requests none keeps the one in the state.
    cluster.args = dataclasses.replace(cluster.args, kubeconfig_generation=2, api_server="k8s.example")
    (cluster.folder / "calls").unlink()
    second = cluster.kubeconfig().out
    assert cluster.playbooks() == [("cluster.yml", "cp-1")]
    assert cluster.calls()[-1]["tags"] == ["client"]
    assert yaml.safe_load(second)["clusters"][0]["cluster"]["server"] == "https://k8s.example:6443"
    assert yaml.safe_load(first)["users"] != yaml.safe_load(second)["users"]


def test_secrets_are_kept_apart_and_told_nobody(cluster: Runner, new: MakeNode) -> None:
    first, again = (cluster.entrust("KEY", registry_password="hunter2") for _ in range(2))
    assert first.out == again.out
    assert (cluster.folder / "identity").stat().st_mode & 0o777 == 0o600
    assert cluster.entrust("KEY", registry_password="hunter3").out != first.out
    assert cluster.converge().code == 0
    assert cluster.playbooks() == [("cluster.yml", "")]
    logs = "".join(log.read_text() for log in (cluster.folder / "logs").iterdir())
    assert "hunter" not in logs + first.out + first.err + (cluster.folder / "journal.json").read_text()
    # Without secrets there is nothing to entrust, and what was entrusted before is forgotten.
    cluster.entrusted = None
    assert cluster.converge().code == 0
    assert not (cluster.folder / "identity").exists()
    assert "hunter" not in "".join(file.read_text() for file in cluster.folder.rglob("*.yml"))


def test_secrets_of_a_host_are_its_own_and_told_nobody_else(cluster: Runner, new: MakeNode, root: pathlib.Path) -> None:
    nodes = cluster.args.nodes
    cluster.entrust("KEY")
    assert cluster.converge().code == 0
    (cluster.folder / "calls").unlink(missing_ok=True)
    one, other = new("secret-1"), new("secret-2")
    # That the run knows the secret shows by where it puts the host's files.
    hidden = root / "hosts" / "hunter2"
    (hidden / "etc/kubernetes").mkdir(parents=True)
    waiting = marker(root / "hosts", "hunter2", "waits")
    variables = {name: value for name, value in one.variables.items() if name != "stand_in_root"}
    one = dataclasses.replace(one, variables=variables, secret_variables={"stand_in_root": str(hidden)})
    cluster.args = dataclasses.replace(cluster.args, nodes=[*nodes, one, other])
    word = cluster.entrust("KEY")
    process = cluster.converge_begun()
    cluster.come_to("scale", "Install what takes time")
    lines = [file.read_bytes() for file in pathlib.Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    waiting.unlink()
    ended = cluster.ended(process)
    assert ended.code == 0, ended.err
    assert any(b"ansible-playbook" in line and str(cluster.folder).encode() in line for line in lines)
    # Ansible's own shells on a host name its files; what runs kubespray names none.
    assert not [line for line in lines if b"hunter2" in line and b"kubespray_driver" in line]
    assert cluster.playbooks() == [("scale.yml", "secret-1:secret-2")]
    assert (hidden / "etc/kubernetes/kubelet").exists()
    held = cluster.folder / "inventory/host_vars/secret-1/secrets.yml"
    assert held.stat().st_mode & 0o777 == 0o600
    files = [cluster.folder / name for name in ("journal.json", "desired.json", "inventory/hosts.yaml")]
    files += [file for file in cluster.folder.glob("inventory/group_vars/**/*") if file.is_file()]
    assert "hunter" not in "".join(file.read_text() for file in files) + word.out + ended.out + ended.err
    # A second run does nothing; another secret of one host is a run on that host.
    (cluster.folder / "calls").unlink()
    assert cluster.entrust("KEY").out == word.out
    assert cluster.converge().code == 0
    assert cluster.calls() == []
    one = dataclasses.replace(one, secret_variables={**one.secret_variables, "registry_password": "hunter3"})
    cluster.args = dataclasses.replace(cluster.args, nodes=[*nodes, one, other])
    assert cluster.entrust("KEY").out != word.out
    assert cluster.converge().code == 0
    assert cluster.playbooks() == [("scale.yml", "secret-1")]
    # Whoever removes it still has to know them, and nobody after that.
    cluster.args = dataclasses.replace(cluster.args, nodes=[*nodes, other])
    cluster.entrust("KEY")
    assert cluster.converge().code == 0
    assert held.exists()
    removal = cluster.call("remove", node_input(one))
    assert removal.code == 0, removal.err
    assert not (hidden / "etc/kubernetes").exists()
    assert not held.parent.exists()
    cluster.entrusted = None


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_change_that_cannot_be_is_refused_and_not_written_down(cluster: Runner, new: MakeNode) -> None:
    before = cluster.args
    ended = cluster.converge(kubernetes_version="1.33.0")
    cluster.args = before
    assert (ended.code, cluster.calls()) == (1, [])
    assert ended.err.splitlines() == [
        "kubernetes: 1.33.0 is older than 1.35.4, the cluster's version; use 1.35.4 or newer"
    ]
    assert json.loads((cluster.folder / "desired.json").read_text())["kubernetes"] == "1.35.4"


def test_what_a_live_cluster_cannot_change_is_refused_whichever_driver_made_it(cluster: Runner, new: MakeNode) -> None:
    before, journal = cluster.args, cluster.folder / "journal.json"
    recorded = json.loads(journal.read_text())
    older = {key: value for key, value in recorded.items() if key != "immutable"}
    for written in (recorded, older):
        journal.write_text(json.dumps(written))
        ended = cluster.converge(variables={"all": {"kube_pods_subnet": "10.96.0.0/16"}})
        cluster.args = before
        assert (ended.code, cluster.calls()) == (1, [])
        assert ended.err.splitlines() == [
            "variables.all.kube_pods_subnet: 10.96.0.0/16 differs from 10.233.64.0/18, with which the cluster was"
            " created; kubespray cannot change it in an existing cluster; restore 10.233.64.0/18, or create a new"
            " cluster"
        ]


def test_a_task_that_fails_is_told_with_its_host_and_the_log(
    cluster: Runner, new: MakeNode, root: pathlib.Path
) -> None:
    more = [*cluster.args.nodes, new("bad-1"), new("bad-2")]
    failing = marker(root / "hosts", "bad-2", "fails")
    ended = cluster.converge(nodes=more)
    assert ended.code == 1
    lines = ended.err.splitlines()[-4:]
    assert lines[0].startswith("scale.yml failed: 1 of ")
    assert lines[1].startswith("host bad-2: task 'kubernetes/node : Install what takes time': ")
    log = pathlib.Path(lines[2].removeprefix("log: ").partition(" on ")[0])
    assert "bad-2" in log.read_text()
    assert "run `pulumi up` again" in lines[3]
    assert "bad-1" not in cluster.members()
    failing.unlink()
    assert cluster.converge().code == 0
    assert {"bad-1", "bad-2"} <= set(cluster.members())


def test_killed_in_the_middle_nothing_overlaps_and_the_next_run_goes_on(
    cluster: Runner, new: MakeNode, root: pathlib.Path
) -> None:
    """Nobody can catch SIGKILL: kubespray's run goes on by itself, and the next one waits for its end."""
    more = [*cluster.args.nodes, new("killed-1")]
    waiting = marker(root / "hosts", "killed-1", "waits")
    process = cluster.converge_begun(nodes=more)
    cluster.come_to("scale", "Install what takes time")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    second = cluster.converge_begun()
    assert "waiting for another run on this cluster;" in first_line(second)
    assert len(cluster.playbooks()) == 1
    waiting.unlink()
    ended = cluster.ended(second)
    assert ended.code == 0, ended.err
    assert cluster.playbooks() == [("scale.yml", "killed-1"), ("scale.yml", "killed-1")]
    assert "killed-1" in cluster.members()


def test_ended_by_a_signal_the_playbook_ends_too(cluster: Runner, new: MakeNode, root: pathlib.Path) -> None:
    more = [*cluster.args.nodes, new("ended-1")]
    waiting = marker(root / "hosts", "ended-1", "waits")
    process = cluster.converge_begun(nodes=more)
    cluster.come_to("scale", "Install what takes time")
    os.killpg(process.pid, signal.SIGTERM)
    assert cluster.ended(process).code != 0
    ended = cluster.call("enroll")
    assert ended.code == 0
    assert "ended-1" not in cluster.members()
    waiting.unlink()


def test_two_at_once_run_once(cluster: Runner, new: MakeNode) -> None:
    more = [*cluster.args.nodes, new("once-1")]
    first, second = cluster.converge_begun(nodes=more), cluster.converge_begun(nodes=more)
    outcomes = [cluster.ended(first), cluster.ended(second)]
    assert [each.code for each in outcomes] == [0, 0]
    assert cluster.playbooks() == [("scale.yml", "once-1")]


def test_a_node_that_never_came_up_is_removed_too(cluster: Runner, new: MakeNode, root: pathlib.Path) -> None:
    failing = marker(root / "hosts", new("never-1").name, "fails")
    assert cluster.converge(nodes=[*cluster.args.nodes, new("never-1")]).code == 1
    (cluster.folder / "calls").unlink()
    failing.unlink()
    first, removal = cluster.remove("never-1")
    assert (first.code, removal.code) == (0, 0)
    assert cluster.playbooks() == [("remove-node.yml", "never-1")]
    assert not (root / "hosts/never-1/etc/kubernetes").exists()


# -- a cluster of its own ---------------------------------------------------------------------------------------------


def test_reset_forgets_the_cluster_and_its_secrets(tmp_path: pathlib.Path) -> None:
    args = KubesprayClusterArgs(
        cluster="c",
        directory=str(tmp_path / "runner"),
        kubespray=HERE,
        nodes=[local_node(tmp_path, "one", "control_plane", "etcd", "worker")],
    )
    runner = Runner(args)
    runner.install()
    identity = runner.call("enroll").out
    assert runner.call("reset").code == 0
    assert runner.calls() == []
    assert runner.call("enroll").out not in ("", identity)
    runner.entrust("KEY")
    assert runner.converge().code == 0
    assert runner.call("reset").code == 0
    assert runner.playbooks() == [("cluster.yml", ""), ("reset.yml", "")]
    left = {file.name for file in runner.folder.iterdir()}
    assert left.isdisjoint({"identity", "journal.json", "desired.json", "inventory", "facts"})
    assert not (tmp_path / "one/etc/kubernetes").exists()


def test_a_full_disk_is_said_in_one_line(tmp_path: pathlib.Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        node = local_node(tmp_path, "one", "control_plane", "etcd", "worker")
        runner = Runner(KubesprayClusterArgs(cluster="c", directory=str(disk), kubespray=HERE, nodes=[node]))
        runner.install()
        runner.call("enroll")
        ended = runner.converge()
        assert ended.code == 1
        assert (
            "a run requires 64 MiB for its log; free disk space, then run `pulumi up` again"
            in ended.err.splitlines()[-1]
        )
        (disk / "ballast").write_bytes(bytes(disk_left(disk)))
        full = runner.converge(nodes=[dataclasses.replace(node, labels={f"label-{n}": "x" * 60 for n in range(200)})])
        assert full.code == 1
        assert "No space left on device" in full.err.splitlines()[-1]
        assert "Traceback" not in full.err
        # The journal is whole.
        assert json.loads((runner.folder / "journal.json").read_text())["identity"]
    finally:
        subprocess.run(["umount", disk], check=True)


def disk_left(folder: pathlib.Path) -> int:
    return shutil.disk_usage(folder).free


# -- installation -----------------------------------------------------------------------------------------------------


def git(folder: pathlib.Path, *arguments: str) -> str:
    identity = ("-c", "user.name=name", "-c", "user.email=name@example", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def mirror(tmp_path: pathlib.Path) -> pathlib.Path:
    """A repository with the stand-in, at kubespray's tag."""
    folder = tmp_path / "mirror"
    shutil.copytree(STAND_IN, folder)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "stand-in")
    git(folder, "tag", "v2.31.0")
    return folder


def installed(tmp_path: pathlib.Path, source: Kubespray) -> tuple[Runner, Outcome]:
    node = local_node(tmp_path, "one", "control_plane", "etcd", "worker")
    directory = str(tmp_path / "runner")
    runner = Runner(KubesprayClusterArgs(cluster="c", directory=directory, kubespray=source, nodes=[node]))
    return runner, runner.install()


def test_a_tag_is_cloned_once(tmp_path: pathlib.Path, mirror: pathlib.Path) -> None:
    commit = git(mirror, "rev-parse", "HEAD")
    source = Kubespray(url=f"file://{mirror}", commit=commit, venv=str(VENV), python=sys.executable)
    runner, ended = installed(tmp_path, source)
    assert ended.code == 0, ended.err
    assert "fetching kubespray v2.31.0" in ended.err
    shutil.rmtree(mirror)
    again = runner.install()
    assert (again.code, again.err, again.out) == (0, "", "kubespray v2.31.0\n")


def test_a_tag_that_is_another_commit_is_refused(tmp_path: pathlib.Path, mirror: pathlib.Path) -> None:
    source = Kubespray(url=f"file://{mirror}", commit="0" * 40, venv=str(VENV), python=sys.executable)
    _, ended = installed(tmp_path, source)
    assert ended.code == 1
    assert "the tag has moved, or the mirror has other content" in ended.err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Kubespray(url="file:///no/such/repository", venv=str(VENV)), "git -c"),
        (Kubespray(folder="/no/such/folder", venv=str(VENV)), "has no cluster.yml"),
        (Kubespray(folder=str(STAND_IN), venv="/no/such/venv"), "No such file or directory; install it"),
    ],
)
def test_what_cannot_be_installed_is_said_in_one_line(tmp_path: pathlib.Path, source: Kubespray, said: str) -> None:
    _, ended = installed(tmp_path, dataclasses.replace(source, python=sys.executable))
    assert ended.code == 1
    assert said in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


def test_an_environment_without_ansible_is_refused(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "empty"
    shutil.copytree(STAND_IN, folder)
    (folder / "requirements.txt").write_text("")
    _, ended = installed(tmp_path, Kubespray(folder=str(folder), python=sys.executable))
    assert ended.code == 1
    assert "No module named 'ansible'" in ended.err.splitlines()[-1]
