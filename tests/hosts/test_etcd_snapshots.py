"""Snapshots of a real etcd of three members on hosts of namespaces: taken, stored elsewhere, and restored."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from gpufleet.bare_metal.etcd_snapshots import EtcdSnapshotsArgs, SnapshotBucket, SnapshotFolder, installer
from gpufleet.bare_metal.preflight.needs import HostNeeds
from gpufleet_tools.hosts.survey import Survey, survey
from tests.hosts import etcd
from tests.hosts.base_layer import BaseLayer
from tests.hosts.namespaces import Ended, Host, Hosts, until
from tests.hosts.sound import write

pytestmark = pytest.mark.slow

RCLONE = "GPUFLEET_RCLONE"
"""Variable that names a real rclone, for the test of S3."""

SYSTEMCTL = r"""#!/bin/sh
# A stand-in: these hosts have no systemd. It starts and stops the real etcd.
echo "$*" >> /var/log/stand-ins/systemctl
case "$*" in
  'start --no-block etcd')
    set -a
    . /etc/etcd.env
    setsid etcd </dev/null >>/var/log/etcd.log 2>&1 & ;;
  'stop etcd')
    pkill -x etcd
    while pgrep -x etcd >/dev/null; do sleep 0.1; done ;;
esac
"""

ENVIRONMENT = """\
ETCD_DATA_DIR=/var/lib/etcd
ETCD_NAME=etcd{number}
ETCD_ADVERTISE_CLIENT_URLS=http://{address}:2379
ETCD_INITIAL_ADVERTISE_PEER_URLS=http://{address}:2380
ETCD_INITIAL_CLUSTER_STATE=new
ETCD_LISTEN_CLIENT_URLS=http://{address}:2379,http://127.0.0.1:2379
ETCD_INITIAL_CLUSTER_TOKEN=k8s_etcd
ETCD_LISTEN_PEER_URLS=http://{address}:2380
ETCD_INITIAL_CLUSTER={members}
ETCD_LOG_LEVEL=error
ETCDCTL_ENDPOINTS=http://127.0.0.1:2379
"""
"""As roles/etcd/templates/etcd.env.j2 of kubespray v2.31.0 writes it, without TLS."""

FOLDER = "/mnt/snapshots"


class Cluster:
    """etcd with a member on each host."""

    def __init__(self, hosts: Hosts, programs: dict[str, pathlib.Path]) -> None:
        self.hosts = hosts
        self.members = [hosts.start(f"node-{number}") for number in (1, 2, 3)]
        peers = ",".join(f"etcd{number}=http://{host.address}:2380" for number, host in enumerate(self.members, 1))
        for number, host in enumerate(self.members, 1):
            for name, file in programs.items():
                shutil.copy(file, host.path(f"/usr/local/bin/{name}"))
            write(host, "/usr/local/bin/systemctl", SYSTEMCTL)
            write(host, "/etc/etcd.env", ENVIRONMENT.format(number=number, address=host.address, members=peers))
            host.run("sh", "-ec", f"mkdir {FOLDER}; mount -t tmpfs tmpfs {FOLDER}")
            host.run("systemctl", "start", "--no-block", "etcd")
        self.wait()

    def wait(self) -> None:
        """Waits until every member is healthy."""
        healthy = ["etcdctl", "endpoint", "health", "--cluster"]
        until(lambda: all(host.run(*healthy, check=False).code == 0 for host in self.members), "a healthy etcd")

    def put(self, key: str, value: str) -> None:
        self.members[0].run("etcdctl", "put", key, value)

    def get(self, host: Host, key: str) -> str:
        return host.run("etcdctl", "get", key, "--print-value-only").out.strip()

    def revision(self) -> int:
        printed = self.members[0].run("etcdctl", "get", "a", "--write-out", "json").out
        return int(json.loads(printed)["header"]["revision"])

    def install(self, host: Host, target: SnapshotFolder | SnapshotBucket, command: str = "install") -> Ended:
        """Does on a host as `pulumi up` does."""
        args = EtcdSnapshotsArgs(hosts=[host.ssh], login=self.hosts.login, target=target, keep=2)

        async def text() -> str:
            return str(await installer(args).future())

        script = asyncio.run(text())
        return self.hosts.ssh(host, f"sudo -n sh -s {command}", stdin=script)


def snapshot(host: Host, *words: str, check: bool = True) -> Ended:
    """Runs the program that is installed on a member."""
    return host.run("/opt/bin/gpufleet-etcd-snapshot", *words, check=check)


@pytest.fixture(scope="module")
def programs() -> dict[str, pathlib.Path]:
    """etcd and its tools."""
    return etcd.programs()


@pytest.fixture
def cluster(host_layer: BaseLayer, tmp_path: pathlib.Path, programs: dict[str, pathlib.Path]) -> Iterator[Cluster]:
    """A healthy etcd of three members."""
    with Hosts(tmp_path / "hosts", host_layer) as hosts:
        yield Cluster(hosts, programs)


def test_a_snapshot_restores_what_was_there(cluster: Cluster) -> None:
    cluster.put("a", "before")
    first, *others = cluster.members
    done = cluster.install(first, SnapshotFolder(path=FOLDER))
    assert (done.code, done.err) == (0, "")
    (name,) = snapshot(first, "list").out.split()
    assert name.startswith("node-1-")
    assert first.calls("systemctl")[-2:] == ["daemon-reload", "enable --now gpufleet-etcd-snapshot.timer"]
    for host in others:
        assert cluster.install(host, SnapshotFolder(path=FOLDER)).code == 0
    cluster.put("a", "after")
    cluster.put("b", "after")
    # Of one member nothing is left, as after a restoration that was killed between its two steps.
    others[1].run("sh", "-ec", "systemctl stop etcd; rm -r /var/lib/etcd")
    content = first.path(f"{FOLDER}/{name}").read_bytes()
    for host in cluster.members:
        host.path("/root/snapshot.db").write_bytes(content)
        snapshot(host, "restore", "/root/snapshot.db")
    for host in cluster.members:
        host.run("systemctl", "start", "--no-block", "etcd")
    cluster.wait()
    assert [cluster.get(host, "a") for host in cluster.members] == ["before"] * 3
    assert cluster.get(first, "b") == ""
    # Watches of the API server start at an old revision; etcd's revisions must not go back.
    assert cluster.revision() > 1_000_000_000
    assert len([*first.path("/var/lib").glob("etcd.before-*")]) == 1


def test_old_snapshots_of_a_member_are_deleted(cluster: Cluster) -> None:
    host = cluster.members[0]
    others = host.path(f"{FOLDER}/node-10-20260101T000000Z.db")
    others.touch()
    cluster.install(host, SnapshotFolder(path=FOLDER))
    first = snapshot(host, "list").out.split()[-1]
    for _ in range(2):
        # Names have seconds.
        time.sleep(1.1)
        snapshot(host, "save")
    names = snapshot(host, "list").out.split()
    assert (len(names), names[0]) == (3, others.name)
    assert first not in names


def test_the_age_of_the_last_snapshot_is_a_fact(cluster: Cluster) -> None:
    host = cluster.members[0]
    cluster.install(host, SnapshotFolder(path=FOLDER))
    needs = HostNeeds(kubernetes=False, memory_mib=0, disk_gib=0, snapshot_hours=6)
    (report,) = survey([host.ssh], Survey(cluster.hosts.login, {host.name: needs}))
    assert (report.failures, report.facts and report.facts.snapshots) == ((), True)
    write(host, "/var/lib/gpufleet/etcd-snapshot.last", f"{int(time.time()) - 20 * 3600}\n")
    (report,) = survey([host.ssh], Survey(cluster.hosts.login, {host.name: needs}))
    (failure,) = report.failures
    assert failure.startswith("etcd snapshot: the last is 20 hours old, declared is every 6")


def test_storage_that_is_of_no_use_fails_at_once(cluster: Cluster) -> None:
    host = cluster.members[0]
    same = cluster.install(host, SnapshotFolder(path="/var"))
    assert (same.code, same.err.strip()) == (
        1,
        "gpufleet-etcd-snapshot: /var is on the disk of etcd; mount storage of another machine there",
    )
    missing = cluster.install(host, SnapshotFolder(path="/mnt/nothing"))
    assert missing.err.strip() == "gpufleet-etcd-snapshot: /mnt/nothing is no folder; mount the storage there"
    host.run("systemctl", "stop", "etcd")
    stopped = cluster.install(host, SnapshotFolder(path=FOLDER))
    assert stopped.err.strip().splitlines()[-1] == "gpufleet-etcd-snapshot: failed: etcdctl endpoint health"


def test_a_file_that_is_no_snapshot_changes_nothing(cluster: Cluster) -> None:
    host = cluster.members[0]
    cluster.put("a", "kept")
    cluster.install(host, SnapshotFolder(path=FOLDER))
    write(host, "/root/wrong.db", "nothing")
    refused = snapshot(host, "restore", "/root/wrong.db", check=False)
    assert refused.code == 1
    assert "stop etcd" not in host.calls("systemctl")
    assert cluster.get(host, "a") == "kept"


def test_removal_leaves_snapshots(cluster: Cluster) -> None:
    host = cluster.members[0]
    cluster.install(host, SnapshotFolder(path=FOLDER))
    assert cluster.install(host, SnapshotFolder(path=FOLDER), "remove").code == 0
    assert not host.path("/opt/bin/gpufleet-etcd-snapshot").exists()
    assert not host.path("/etc/gpufleet/gpufleet-etcd-snapshot.conf").exists()
    assert len([*host.path(FOLDER).iterdir()]) == 1


@pytest.fixture
def bucket(cluster: Cluster) -> Iterator[SnapshotBucket]:
    """A bucket of S3, as moto serves it to the hosts."""
    rclone = os.environ.get(RCLONE)
    if not rclone:
        pytest.skip(f"{RCLONE} names no real rclone")
    for host in cluster.members:
        shutil.copy(rclone, host.path("/usr/local/bin/rclone"))
    server = ThreadedMotoServer(ip_address=cluster.hosts.machine_address, port=0, verbose=False)
    server.start()
    host_name, port = server.get_host_and_port()
    endpoint = f"http://{host_name}:{port}"
    subprocess.run(["curl", "--silent", "--fail", "--request", "PUT", f"{endpoint}/lab-etcd"], check=True, timeout=30)
    yield SnapshotBucket(
        bucket="lab-etcd",
        region="us-east-1",
        endpoint=endpoint,
        access_key_id="AKIA0",
        secret_access_key="is a secret",
    )
    server.stop()


def test_snapshots_go_to_s3_and_come_back(cluster: Cluster, bucket: SnapshotBucket) -> None:
    cluster.put("a", "before")
    first, second, _ = cluster.members
    for host in (first, second):
        done = cluster.install(host, bucket)
        assert (done.code, done.err) == (0, "")
        assert host.path("/etc/gpufleet/gpufleet-etcd-snapshot.conf").stat().st_mode & 0o077 == 0
    for _ in range(2):
        time.sleep(1.1)
        snapshot(first, "save")
    names = snapshot(second, "list").out.split()
    assert [name[:6] for name in names] == ["node-2", "node-1", "node-1"]
    second.run("sh", "-ec", f"cd /root && /opt/bin/gpufleet-etcd-snapshot fetch {names[-1]}")
    second.run("etcdutl", "snapshot", "status", f"/root/{names[-1]}")
