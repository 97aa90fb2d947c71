"""EtcdSnapshots: snapshots of etcd on a schedule, stored away from the machine, and their restoration."""

from __future__ import annotations

import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pulumi

from gpufleet.bare_metal.host_script import install_on_hosts
from gpufleet.bare_metal.ssh import SshHost, SshLogin, ssh_problems
from gpufleet.problem import Problem, refuse

INSTALLER = pathlib.Path(__file__).with_suffix(".sh")
PROGRAM = pathlib.Path(__file__).with_name("etcd_snapshot_program.sh")
"""The program on each member; it uses etcdctl and etcdutl, which kubespray installs beside etcd."""

EveryHours = Literal[1, 2, 3, 4, 6, 8, 12, 24]
"""Divisors of a day, so that each day has the same times."""

FOLDER = r"/[A-Za-z0-9._/-]+"
BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
PREFIX = r"[A-Za-z0-9_./-]*[A-Za-z0-9_.-]"
ENDPOINT = r"https?://[A-Za-z0-9.:\[\]-]+"


@dataclass(frozen=True, kw_only=True)
class SnapshotFolder:
    """A folder on each member, on a disk that is not the member's own: a mounted network file system."""

    path: str
    """Absolute path. Members may share it."""


@dataclass(frozen=True, kw_only=True)
class SnapshotBucket:
    """A bucket of S3 or of a compatible store. Members require rclone."""

    bucket: str
    """Name of the bucket."""
    region: str
    """Region of the bucket."""
    access_key_id: pulumi.Input[str]
    """Access key that may list, write and delete objects below the prefix."""
    secret_access_key: pulumi.Input[str]
    """Secret of the access key."""
    prefix: str = "etcd"
    """Prefix of the objects, without a slash at its end."""
    endpoint: str | None = None
    """URL of a compatible store; None for AWS."""


@dataclass(frozen=True, kw_only=True)
class EtcdSnapshotsArgs:
    """Arguments of `EtcdSnapshots`."""

    hosts: Sequence[SshHost]
    """Members of etcd. Each stores snapshots of its own, so that the loss of one loses none."""
    login: SshLogin
    """SSH login for the members: root, or a user with passwordless sudo."""
    target: SnapshotFolder | SnapshotBucket
    """Storage of the snapshots."""
    every_hours: EveryHours = 6
    """Hours between two snapshots of a member."""
    keep: int = 28
    """Number of snapshots of each member that are kept; older ones are deleted."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist first, such as the cluster."""


class EtcdSnapshots(pulumi.ComponentResource):
    """Snapshots of etcd on each member: a program and a systemd timer.

    Every `pulumi up` that changes an argument takes a snapshot, so that unusable storage fails at once. Snapshots stay
    when the component is deleted. `gpufleet-etcd-snapshot restore FILE` on each member restores one.
    """

    ready: pulumi.Resource
    """The first snapshot of every member; depend on it to wait until one is stored."""

    def __init__(self, name: str, args: EtcdSnapshotsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, snapshot_problems(args))
        super().__init__("gpu-runners:index:EtcdSnapshots", name, None, opts)
        install_on_hosts(name, args.hosts, args.login, installer(args), self, args.needs)
        self.ready = self
        self.register_outputs({"every_hours": args.every_hours})


def snapshot_problems(args: EtcdSnapshotsArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    if not args.hosts:
        yield Problem(("hosts",), "no-hosts", "is empty; at least one member of etcd is required")
    yield from ssh_problems(args.hosts, args.login)
    if args.every_hours not in get_args(EveryHours):
        allowed = ", ".join(str(hours) for hours in get_args(EveryHours))
        yield Problem(
            ("every_hours",), "every-hours", f"{args.every_hours} does not divide a day; use one of {allowed}"
        )
    if args.keep < 1:
        yield Problem(("keep",), "keep", f"{args.keep} would delete every snapshot; keep at least 1")
    target = args.target
    if isinstance(target, SnapshotFolder):
        if not re.fullmatch(FOLDER, target.path):
            message = f"{target.path!r} is no absolute path of letters, digits and ._-; write /mnt/NAME"
            yield Problem(("target", "path"), "folder", message)
        return
    if not re.fullmatch(BUCKET, target.bucket):
        message = f"{target.bucket!r} is no name of a bucket; use 3 to 63 lower-case letters, digits, '.' and '-'"
        yield Problem(("target", "bucket"), "bucket", message)
    if not re.fullmatch(PREFIX, target.prefix):
        message = f"{target.prefix!r} is no prefix; use letters, digits and slashes, without a slash at the end"
        yield Problem(("target", "prefix"), "prefix", message)
    if target.endpoint and not re.fullmatch(ENDPOINT, target.endpoint):
        yield Problem(("target", "endpoint"), "endpoint", f"{target.endpoint!r} is no URL; write https://HOST")


def installer(args: EtcdSnapshotsArgs) -> pulumi.Output[str]:
    """Return the script for each member: the file beside this one, preceded by its values."""
    target = args.target
    values: dict[str, pulumi.Input[str]] = {"keep": str(args.keep)}
    if isinstance(target, SnapshotFolder):
        values["folder"] = target.path
    else:
        values |= {"bucket": f"{target.bucket}/{target.prefix}"} | _rclone_variables(target)
    return pulumi.Output.all(**values).apply(lambda resolved: _script(resolved, args.every_hours))


def _rclone_variables(target: SnapshotBucket) -> dict[str, pulumi.Input[str]]:
    """Return variables that define the remote `snapshots` (rclone.org/docs, environment variables)."""
    variables: dict[str, pulumi.Input[str]] = {
        "TYPE": "s3",
        "PROVIDER": "Other" if target.endpoint else "AWS",
        "REGION": target.region,
        "ENDPOINT": target.endpoint or "",
        "ACCESS_KEY_ID": target.access_key_id,
        "SECRET_ACCESS_KEY": pulumi.Output.secret(target.secret_access_key),
        # The bucket exists; a key that may write objects need not be allowed to create buckets.
        "NO_CHECK_BUCKET": "true",
    }
    remote = {f"RCLONE_CONFIG_SNAPSHOTS_{name}": value for name, value in variables.items()}
    return {**remote, "RCLONE_LOG_LEVEL": "ERROR"}


def _script(values: dict[str, str], every_hours: int) -> str:
    """Return the installer with the program, the program's configuration, and the schedule as its variables."""
    configuration = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    variables = {
        "program": PROGRAM.read_text(),
        "configuration": configuration,
        "schedule": f"*-*-* 0/{every_hours}:00:00",
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()) + INSTALLER.read_text()
