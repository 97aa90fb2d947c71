"""Bare-metal clusters that tests start from: document 000's, and many near-twins of it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import string
from typing import Any

from hypothesis import strategies as st

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs, KubesprayNode
from gpufleet.bare_metal.ssh import SshLogin
from gpufleet.taint import Taint

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIk7lNY0JR6bWYx1rVQzHqfFRmQ8N8xJ0m1m2m3m4m5m"

LOGIN = SshLogin(user="ci", private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nnot a key\n")


def host_key(name: str) -> str:
    """A public host key of nobody's, another one for each name."""
    prefix = base64.b64decode(HOST_KEY.split()[1])[:-32]
    return f"ssh-ed25519 {base64.b64encode(prefix + hashlib.sha256(name.encode()).digest()).decode()}"


def node(name: str, address: str, *roles: str, **further: Any) -> KubesprayNode:
    return KubesprayNode(
        name=name,
        address=address,
        roles=roles or ("worker",),  # type: ignore[arg-type]
        host_keys=[host_key(name)],
        **further,
    )


DOCUMENT_000 = KubesprayClusterArgs(
    cluster="mi300",
    login=LOGIN,
    nodes=[
        node("control-austin-1", "192.0.2.2", "control_plane", "etcd", internal_address="192.0.2.2", site="austin"),
        node("control-austin-2", "192.0.2.3", "control_plane", "etcd", internal_address="192.0.2.3", site="austin"),
        node("control-austin-3", "192.0.2.4", "control_plane", "etcd", internal_address="192.0.2.4", site="austin"),
        node("mi300x-austin-1", "192.0.2.11", site="austin", labels={"accelerator": "amd-mi300x", "pytorch": "yes"}),
        node("mi300x-austin-2", "192.0.2.12", site="austin", labels={"accelerator": "amd-mi300x", "pytorch": "yes"}),
        node("mi300x-santa-clara-1", "198.51.100.21", site="santa-clara", labels={"accelerator": "amd-mi300x"}),
    ],
)
"""Document 000: containerd, calico, ipvs, etcd on its hosts, machines across the country on one corporate network."""


def changed(**changes: Any) -> KubesprayClusterArgs:
    """Document 000's cluster, but for some arguments."""
    return dataclasses.replace(DOCUMENT_000, **changes)


def with_node(name: str, **changes: Any) -> KubesprayClusterArgs:
    """Document 000's cluster, but for one of its nodes."""
    return changed(
        nodes=[dataclasses.replace(each, **changes) if each.name == name else each for each in DOCUMENT_000.nodes]
    )


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True)
VALUES = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)


@st.composite
def clusters(draw: st.DrawFn) -> KubesprayClusterArgs:
    """Clusters without violations, of one to a dozen machines."""
    names = draw(st.lists(NAMES, min_size=1, max_size=12, unique=True))
    controls = draw(st.integers(1, len(names)))
    members = draw(st.sampled_from([count for count in (1, 3, 5, 7) if count <= len(names)]))
    workers = draw(st.integers(0, len(names) - 1))
    nodes = []
    for number, name in enumerate(names):
        roles = ["control_plane"] * (number < controls) + ["etcd"] * (number < members)
        roles += ["worker"] * (number >= workers or not roles)
        nodes.append(
            node(
                name,
                f"192.0.2.{number + 1}",
                *roles,
                site=draw(st.none() | VALUES),
                labels=draw(st.dictionaries(VALUES, VALUES, max_size=2)),
                taints=[Taint(key=key) for key in draw(st.lists(VALUES, max_size=1))],
                internal_address=draw(st.sampled_from([None, f"10.0.0.{number + 1}"])),
            )
        )
    return changed(nodes=nodes, proxy_mode=draw(st.sampled_from(["ipvs", "iptables", "nftables"])))
