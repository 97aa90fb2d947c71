"""SSH access to hosts with known host keys, for pulumi-command and for OpenSSH with Ansible."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_command.remote import ConnectionArgs, ProxyConnectionArgs

from gpufleet.problem import Path, Problem, under

HOST_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
"""Host key types that both clients can verify. RSA is excluded: pulumi-command offers `ssh-rsa` as the only algorithm
(SSHConfig in provider/pkg/provider/remote/connection.go). That means SHA-1 signatures, which OpenSSH rejects since
8.8."""

HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Pattern of a host name: an RFC 1123 label, as required for Kubernetes nodes and accepted in Ansible inventories."""

USER_NAME = r"[a-z_][a-z0-9_-]{0,31}"
"""Pattern of a user name, as accepted by `useradd` of shadow-utils."""

SOCKET = r"/[^\s\"'#%$\\]*"
"""Pattern of a socket path, restricted to what OpenSSH's configuration can contain."""

PORTS = (1, 65535)
"""Lowest and highest port."""

DNS_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class SshHost:
    """A host reached by SSH, or a jump host."""

    name: str
    """Name of the host, here and in a cluster: lower-case letters, digits and `-`, at most 63 characters."""
    address: str
    """IP address or DNS name."""
    host_keys: Sequence[str]
    """Public host keys, each in the format of `/etc/ssh/ssh_host_ed25519_key.pub`: `ssh-ed25519 AAAA…`. Hosts with
    other keys are rejected. pulumi-command only verifies the first key, so it must be one that the host offers."""
    port: int = 22
    """Port of the SSH server."""
    user: str | None = None
    """User on this host; if None, the login's."""


@dataclass(frozen=True, kw_only=True)
class SshLogin:
    """Login for hosts: user, key and route."""

    user: str
    """User on the hosts."""
    private_key: pulumi.Input[str] | None = None
    """Private key in OpenSSH format, without a passphrase; becomes a secret. None if an agent holds it."""
    agent_socket: str | None = None
    """Socket of an SSH agent that holds the key. None if `private_key` is set."""
    jump: SshHost | None = None
    """Jump host, with the same user and key; None for direct connections."""
    dial_seconds: int = 15
    """Timeout of one connection attempt in seconds."""
    dial_attempts: int = 4
    """Maximum number of connection attempts, at least two seconds apart. Covers hosts that are still starting."""


def ssh_problems(hosts: Sequence[SshHost], login: SshLogin) -> Iterator[Problem]:
    """Yield every problem of the hosts and the login. Paths begin with `hosts` or `login`."""
    yield from under(("login",), _login_problems(login))
    places: list[tuple[Path, SshHost]] = [(("hosts", index), host) for index, host in enumerate(hosts)]
    if login.jump:
        places.append((("login", "jump"), login.jump))
    names: set[str] = set()
    addresses: set[str] = set()
    for where, host in places:
        yield from under(where, host_problems(host))
        if host.name in names:
            yield Problem((*where, "name"), "host-name-twice", f"{host.name!r} is the name of two hosts; rename one")
        if host.address in addresses:
            message = f"{host.address!r} is the address of two hosts; correct one"
            yield Problem((*where, "address"), "host-address-twice", message)
        names.add(host.name)
        addresses.add(host.address)


def _login_problems(login: SshLogin) -> Iterator[Problem]:
    if (login.private_key is None) == (login.agent_socket is None):
        yield Problem((), "login-ways", "requires either private_key or agent_socket; set exactly one of them")
    if login.agent_socket is not None and not re.fullmatch(SOCKET, login.agent_socket):
        message = f"{login.agent_socket!r} is not a socket; write an absolute path without blanks"
        yield Problem(("agent_socket",), "agent-socket", message)
    if not re.fullmatch(USER_NAME, login.user):
        yield Problem(("user",), "login-user", f"{login.user!r} is not a user name; correct it")
    for argument, number in (("dial_seconds", login.dial_seconds), ("dial_attempts", login.dial_attempts)):
        if number < 1:
            message = f"{number} is too small; use at least 1, or unreachable hosts block forever"
            yield Problem((argument,), "dial", message)


def host_problems(host: SshHost) -> Iterator[Problem]:
    """Yield every problem of one host."""
    if not HOST_NAME.fullmatch(host.name):
        message = f"{host.name!r} is not a host name; use at most 63 lower-case letters, digits and '-'"
        yield Problem(("name",), "host-name", message)
    if not _is_address(host.address):
        message = f"{host.address!r} is neither an IP address nor a DNS name; correct it"
        yield Problem(("address",), "host-address", message)
    lowest, highest = PORTS
    if not lowest <= host.port <= highest:
        yield Problem(("port",), "port", f"{host.port} is not a port; use {lowest} to {highest}")
    if host.user is not None and not re.fullmatch(USER_NAME, host.user):
        yield Problem(("user",), "host-user", f"{host.user!r} is not a user name; correct it")
    if not host.host_keys:
        message = "is empty; read a key on the host's own console: cat /etc/ssh/ssh_host_ed25519_key.pub"
        yield Problem(("host_keys",), "host-keys-missing", message)
    for index, key in enumerate(host.host_keys):
        yield from under(("host_keys", index), _key_problems(key))


def _key_problems(key: str) -> Iterator[Problem]:
    kind, _, rest = key.strip().partition(" ")
    if "PRIVATE KEY" in key:
        message = "is a private key; use the public key, the line in the file that ends in .pub"
        yield Problem((), "host-key-private", message)
    elif kind == "ssh-rsa":
        message = "is an RSA key, which pulumi-command cannot verify; use the host's ssh-ed25519 key"
        yield Problem((), "host-key-rsa", message)
    elif kind not in HOST_KEY_TYPES:
        message = f"is not a supported host key; it must begin with one of {', '.join(HOST_KEY_TYPES)}"
        yield Problem((), "host-key-type", message)
    elif not _is_whole(key, kind, rest):
        yield Problem((), "host-key-broken", f"is not a complete {kind} key; copy the whole line")


def _is_whole(key: str, kind: str, rest: str) -> bool:
    try:
        blob = base64.b64decode(rest.split()[0] if rest.split() else "", validate=True)
    except binascii.Error:
        return False
    # The blob begins with its own type, after the type's length (RFC 4253, section 6.6).
    return (
        blob[4 : 4 + len(kind)] == kind.encode()
        and int.from_bytes(blob[:4], "big") == len(kind)
        and "\n" not in key.strip()
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return DNS_NAME.fullmatch(text) is not None
    return True


def user_of(host: SshHost, login: SshLogin) -> str:
    """Return the user that logs in to a host."""
    return host.user or login.user


def root_shell(host: SshHost, login: SshLogin) -> str:
    """Return the command that runs a script from standard input as root on a host. If sudo would ask for a password, it
    fails with one line."""
    return "sh -s" if user_of(host, login) == "root" else "sudo -n sh -s"


def public_key(line: str) -> str:
    """Return a public key without its comment."""
    return " ".join(line.split()[:2])


def connection(host: SshHost, login: SshLogin) -> ConnectionArgs:
    """Return the connection arguments of pulumi-command for a host. They support only one host key: the first."""
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
        # Number of tolerated errors, not of attempts (reachedDialingErrorLimit).
        dial_error_limit=login.dial_attempts - 1,
        proxy=proxy,
    )


def known_hosts(hosts: Sequence[SshHost], login: SshLogin) -> str:
    """Return the text of a `known_hosts` file with every key of every host, by host name (`HostKeyAlias`)."""
    everyone = [*hosts, *([login.jump] if login.jump else [])]
    return "".join(f"{host.name} {public_key(key)}\n" for host in everyone for key in host.host_keys)


def ssh_config(
    hosts: Sequence[SshHost], login: SshLogin, *, known_hosts_file: str, identity_file: str | None = None
) -> str:
    """Return an OpenSSH client configuration, for `ssh -F` and Ansible's `ssh_common_args`.

    Each host can be reached by its name and its address. `identity_file` is the path of the login's private key, mode
    0600; None if an agent holds it. Both paths must not contain spaces. The caller's own `known_hosts` is not read,
    there are no prompts, and hosts with other keys are rejected.
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
