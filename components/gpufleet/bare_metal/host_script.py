"""Scripts that install something on hosts, as remote commands."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_command.remote import Command

from gpufleet.bare_metal.ssh import SshHost, SshLogin, connection, root_shell


def install_on_hosts(
    name: str,
    hosts: Sequence[SshHost],
    login: SshLogin,
    script: pulumi.Input[str],
    parent: pulumi.Resource,
    needs: Sequence[pulumi.Resource],
    *,
    one_by_one: bool = False,
) -> None:
    """Register a command for each host: it runs the script as root with the argument `install` when it is created or
    the script changes, and with `remove` when it is deleted.

    `one_by_one` has each host wait for the one before. After a failure, the rest stays as it is.
    """
    before: list[pulumi.Resource] = []
    for host in hosts:
        shell = root_shell(host, login)
        command = Command(
            f"{name}-{host.name}",
            connection=connection(host, login),
            create=f"{shell} install",
            update=f"{shell} install",
            delete=f"{shell} remove",
            # Passed as standard input: pulumi-command quotes the whole command in every error.
            stdin=script,
            # A default sshd rejects these variables, with a warning for each.
            add_previous_output_in_env=False,
            # No input causes a replacement. If one is forced, `remove` must run before `install`.
            opts=pulumi.ResourceOptions(parent=parent, depends_on=[*needs, *before], delete_before_replace=True),
        )
        before = [command] if one_by_one else []
