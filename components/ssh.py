"""SSH to hosts whose keys are known beforehand: as pulumi-command connects, and as OpenSSH and Ansible do."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_command.remote import ConnectionArgs, ProxyConnectionArgs

HOST_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
"""Types of host key that both clients can hold a host to. An RSA key is none: pulumi-command offers its type,
`ssh-rsa`, as the only algorithm (SSHConfig in provider/pkg/provider/remote/connection.go), which is the signature with
SHA-1 that OpenSSH has refused since 8.8."""

HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A host's name: an RFC 1123 label, which Kubernetes wants of a node and Ansible takes in an inventory."""

USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""A user's name, as `useradd` of shadow-utils takes it."""

DNS_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class SshHost:
    """A host that is reached by SSH, or on the way to one."""

    name: str
    """What it is called, here and in a cluster: lower-case letters, digits and `-`, at most 63 characters."""
    address: str
    """Its IP address, or a DNS name."""
    host_keys: Sequence[str]
    """Its public keys, each as `/etc/ssh/ssh_host_ed25519_key.pub` has it on the host: `ssh-ed25519 AAAA…`. A host that
    shows another is refused. pulumi-command holds it to the first, so the first is one that the host shows."""
    port: int = 22
    """Port of its SSH server."""
    user: str | None = None
    """User on it, where it is not the login's."""


@dataclass(frozen=True, kw_only=True)
class SshLogin:
    """Who logs in to hosts, and by which way."""

    user: str
    """User on the hosts."""
    private_key: pulumi.Input[str] | None = None
    """Private key in OpenSSH's format, without a passphrase; it becomes a secret. None where an agent has it."""
    agent_socket: str | None = None
    """Socket of an SSH agent that holds the key. None where `private_key` is given."""
    jump: SshHost | None = None
    """Host to go through, with the same user and key; None where the hosts are reached directly."""
    dial_seconds: int = 15
    """Seconds that one attempt to connect may take."""
    dial_attempts: int = 4
    """Attempts to connect before it counts as failed, two seconds apart or more. For hosts that are still starting."""


def ssh_refusals(hosts: Sequence[SshHost], login: SshLogin) -> list[str]:
    """Every reason why these hosts cannot be reached like this; empty where they may be."""
    reasons = []
    if (login.private_key is None) == (login.agent_socket is None):
        reasons.append("login: give either private_key or agent_socket")
    if login.agent_socket is not None and not _one_word(login.agent_socket):
        reasons.append(f"login.agent_socket: {login.agent_socket!r} is not a path without blanks")
    if not USER_NAME.fullmatch(login.user):
        reasons.append(f"login.user: {login.user!r} is not a user's name")
    if login.dial_seconds < 1 or login.dial_attempts < 1:
        reasons.append("login: dial_seconds and dial_attempts are at least 1, or a host that is down would hang it")
    everyone = [*hosts, *([login.jump] if login.jump else [])]
    for host in everyone:
        reasons += [f"{host.name or 'host'}: {reason}" for reason in _host_refusals(host)]
    for what, values in (
        ("name", [host.name for host in everyone]),
        ("address", [host.address for host in everyone]),
    ):
        twice = sorted({value for value in values if values.count(value) > 1})
        reasons += [f"hosts: two have the {what} {value}; each host is named once" for value in twice]
    return reasons


def _host_refusals(host: SshHost) -> list[str]:
    reasons = []
    if not HOST_NAME.fullmatch(host.name):
        reasons.append("name: has to be lower-case letters, digits and '-', at most 63 characters")
    if not _is_address(host.address):
        reasons.append(f"address: {host.address!r} is neither an IP address nor a DNS name")
    if not 1 <= host.port <= 65535:
        reasons.append(f"port: {host.port} is not between 1 and 65535")
    if host.user is not None and not USER_NAME.fullmatch(host.user):
        reasons.append(f"user: {host.user!r} is no user's name; correct it")
    if not host.host_keys:
        reasons.append("host_keys: none; read one on the host's own console: cat /etc/ssh/ssh_host_ed25519_key.pub")
    for index, key in enumerate(host.host_keys):
        if reason := _key_refusal(key):
            reasons.append(f"host_keys[{index}]: {reason}")
    return reasons


def _key_refusal(key: str) -> str | None:
    kind, _, rest = key.strip().partition(" ")
    if "PRIVATE KEY" in key:
        return "is a private key; give the public one, the line of the file that ends in .pub"
    if kind == "ssh-rsa":
        return "is an RSA key, which pulumi-command cannot check; give the host's ssh-ed25519 key"
    if kind not in HOST_KEY_TYPES:
        return f"does not start with one of {', '.join(HOST_KEY_TYPES)}"
    try:
        blob = base64.b64decode(rest.split()[0] if rest.split() else "", validate=True)
    except binascii.Error:
        blob = b""
    # The blob says its own type first, after its length (RFC 4253, section 6.6).
    if blob[4 : 4 + len(kind)] != kind.encode() or int.from_bytes(blob[:4], "big") != len(kind) or "\n" in key.strip():
        return f"is not a whole {kind} key on one line"
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return DNS_NAME.fullmatch(text) is not None
    return True


def _one_word(path: str) -> bool:
    return bool(path) and not re.search(r"[\s\"'#%$\\]", path)


def user_of(host: SshHost, login: SshLogin) -> str:
    """Who logs in to a host."""
    return host.user or login.user


def public_key(line: str) -> str:
    """A public key without its comment."""
    return " ".join(line.split()[:2])


def connection(host: SshHost, login: SshLogin) -> ConnectionArgs:
    """How pulumi-command reaches a host. It knows a single host key: the first."""
    key = None if login.private_key is None else pulumi.Output.secret(login.private_key)
    proxy = None
    if login.jump:
        proxy = ProxyConnectionArgs(
            host=login.jump.address,
            port=login.jump.port,
            user=user_of(login.jump, login),
            private_key=key,
            agent_socket_path=login.agent_socket,
            host_key=public_key(login.jump.host_keys[0]),
            per_dial_timeout=login.dial_seconds,
            dial_error_limit=login.dial_attempts - 1,
        )
    return ConnectionArgs(
        host=host.address,
        port=host.port,
        user=user_of(host, login),
        private_key=key,
        agent_socket_path=login.agent_socket,
        host_key=public_key(host.host_keys[0]),
        per_dial_timeout=login.dial_seconds,
        # Counts the errors that are let pass, not the attempts (reachedDialingErrorLimit).
        dial_error_limit=login.dial_attempts - 1,
        proxy=proxy,
    )


def known_hosts(hosts: Sequence[SshHost], login: SshLogin) -> str:
    """Text of a `known_hosts` file: every key of every host, by the host's name (`HostKeyAlias`)."""
    everyone = [*hosts, *([login.jump] if login.jump else [])]
    return "".join(f"{host.name} {public_key(key)}\n" for host in everyone for key in host.host_keys)


def ssh_config(
    hosts: Sequence[SshHost], login: SshLogin, *, known_hosts_file: str, identity_file: str | None = None
) -> str:
    """Text of an OpenSSH client configuration, for `ssh -F` and Ansible's `ssh_common_args`.

    Each host answers to its name and to its address. `identity_file` names a file with the login's private key, mode
    0600; None where an agent holds it. Both paths are without blanks. Nothing is read from the caller's own
    `known_hosts`, nothing is asked, and a host that shows another key is refused.
    """
    authentication = (
        f"  IdentityFile {identity_file}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        if identity_file
        else f"  IdentityFile none\n  IdentityAgent {login.agent_socket}\n"
    )
    text = "".join(_host_section(host, login.jump) for host in hosts)
    if login.jump:
        text += _host_section(login.jump, None)
    return (
        f"{text}Host *\n"
        f"  User {login.user}\n"
        f"{authentication}"
        "  PreferredAuthentications publickey\n"
        "  BatchMode yes\n"
        "  StrictHostKeyChecking yes\n"
        f"  UserKnownHostsFile {known_hosts_file}\n"
        "  GlobalKnownHostsFile none\n"
        "  UpdateHostKeys no\n"
        f"  ConnectTimeout {login.dial_seconds}\n"
        "  ServerAliveInterval 10\n"
        "  ServerAliveCountMax 3\n"
        "  ControlMaster no\n"
        "  ControlPath none\n"
        "  LogLevel ERROR\n"
    )


def _host_section(host: SshHost, jump: SshHost | None) -> str:
    return (
        f"Host {host.name} {host.address}\n"
        f"  HostName {host.address}\n"
        f"  Port {host.port}\n"
        f"  HostKeyAlias {host.name}\n"
        + (f"  User {host.user}\n" if host.user else "")
        + (f"  ProxyJump {jump.name}\n" if jump else "")
    )
