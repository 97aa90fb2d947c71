"""KubesprayCluster: Kubernetes on machines that exist, made and kept by kubespray."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pulumi
from pulumi_command import local, remote

from components import kubespray_driver, kubespray_folder, kubespray_install, kubespray_playbook, kubespray_steps
from components.kubespray_args import KubesprayClusterArgs, KubesprayNode
from components.kubespray_driver import FOLDER
from components.kubespray_inventory import described, desired, server_url, ssh_host
from components.kubespray_rules import violations
from components.ssh import SshHost, connection, known_hosts, ssh_config

MODULES: Sequence[ModuleType] = (
    kubespray_driver,
    kubespray_folder,
    kubespray_install,
    kubespray_playbook,
    kubespray_steps,
)
"""What runs kubespray, sent to where it runs."""

BOOTSTRAP = """\
import json, os, pathlib, sys
if sys.version_info < (3, 11): sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}; 3.11 to 3.13 is needed")
folder, told = os.path.abspath(sys.argv[1]), json.load(sys.stdin)
for name, text in told["files"].items():
    file = pathlib.Path(folder, "driver", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".part").write_text(text)
    file.with_suffix(".part").replace(file)
sys.path.insert(0, os.path.join(folder, "driver"))
from components import kubespray_driver
sys.exit(kubespray_driver.main(folder, "install", told))
"""


class KubesprayCluster(pulumi.ComponentResource):
    """Kubernetes on machines that exist.

    Every machine is a piece of state of its own: what is added to the list, or changed, is brought in by one run of
    kubespray, and what is removed from it is drained and removed by its own deletion. The journal of what is in the
    cluster lies on the machine that runs kubespray, so that a run that was broken off goes on with the next
    `pulumi up`. Two runs never overlap there.

    `pulumi destroy` is refused while `protect` is on; without, it resets the whole cluster in one run. Machines are
    deleted with the cluster then, not one by one.
    """

    ready: pulumi.Resource
    """The run that brought the cluster up to date: depend on it for "the cluster and its nodes are there"."""
    kubeconfig: pulumi.Output[str]
    """The administrator's kubeconfig, a secret. It stays as it is until `kubeconfig_generation` counts up or another
    cluster takes the place of this one. Its certificate is valid for a year."""

    def __init__(self, name: str, args: KubesprayClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        if faults := violations(args):
            raise ValueError("\n".join(f"{name}: {fault}" for fault in faults))
        super().__init__("gpu-runners:index:KubesprayCluster", name, None, opts)
        self._args = args
        installed = self._installed(name)
        # Its deletion resets the cluster, so what is in the cluster is deleted with it.
        cluster = self._command(
            f"{name}-cluster",
            create="enroll",
            delete="reset",
            needs=[installed],
            protect=args.protect,
        )
        nodes = [self._node(name, node, cluster) for node in args.nodes]
        needs = [*args.needs, *nodes]
        credentials = self._credentials(name, cluster)
        needs += [credentials] if credentials else []
        # A word of the secrets' own making, and no secret: a preview can show what else has changed.
        word = pulumi.Output.unsecret(credentials.stdout) if credentials else pulumi.Output.from_input(None)
        told = word.apply(lambda word: converge_input(args, word))
        self.ready = self._command(f"{name}-converge", create="converge", stdin=told, needs=needs)
        fetched = self._command(
            f"{name}-kubeconfig",
            create="kubeconfig",
            stdin=pulumi.Output.unsecret(cluster.stdout).apply(lambda identity: kubeconfig_input(args, identity)),
            needs=[self.ready],
            secret=True,
        )
        self.kubeconfig = pulumi.Output.secret(fetched.stdout)
        self.register_outputs({"kubeconfig": self.kubeconfig, "kubernetes_version": args.kubernetes_version})

    def _installed(self, name: str) -> local.Command | remote.Command:
        """kubespray, its Ansible, and what runs it."""
        return self._command(
            f"{name}-kubespray", create=install_line(self._args), stdin=install_input(self._args), shell=True
        )

    def _node(
        self, name: str, node: KubesprayNode, cluster: local.Command | remote.Command
    ) -> local.Command | remote.Command:
        """A machine. Bringing it in is the business of the run for all; taking it out is its own."""
        return self._command(
            f"{name}-node-{node.name}",
            delete="remove",
            stdin=node_input(node),
            needs=[cluster],
            deleted_with=cluster,
        )

    def _credentials(self, name: str, cluster: local.Command | remote.Command) -> local.Command | remote.Command | None:
        """What is secret, apart from everything else, so that a preview can show the rest."""
        key = self._args.login.private_key if self._args.login else None
        hosts = secret_hosts(self._args)
        if key is None and not self._args.secret_variables and not hosts:
            return None
        variables = dict(self._args.secret_variables)
        told = pulumi.Output.secret({"identity_file": key, "variables": variables, "hosts": hosts})
        return self._command(
            f"{name}-credentials",
            create="entrust",
            stdin=told.apply(lambda secrets: json.dumps(secrets, sort_keys=True)),
            needs=[cluster],
            quiet=True,
        )

    def _command(
        self,
        name: str,
        *,
        create: str | None = None,
        delete: str | None = None,
        stdin: pulumi.Input[str] | None = None,
        needs: Sequence[pulumi.Resource] = (),
        shell: bool = False,
        quiet: bool = False,
        secret: bool = False,
        **options: Any,
    ) -> local.Command | remote.Command:
        """One command where kubespray runs. What it is told comes by standard input, which no list of processes shows
        and no failure prints. Not by `triggers`: pulumi-command replaces a resource for those, and so would delete it
        (provider/pkg/provider/common/inputs.go at v1.2.1)."""
        run = f"{folder_of(self._args)}/run"
        given: dict[str, Any] = {
            "create": create if shell or create is None else f"{run} {create}",
            "delete": delete and f"{run} {delete}",
            "stdin": stdin,
            # The environment of a process has no room for what a long run says.
            "add_previous_output_in_env": False,
            "opts": pulumi.ResourceOptions(
                parent=self,
                depends_on=[*needs],
                additional_secret_outputs=["stdout", "stderr"] if secret else None,
                **options,
            ),
        }
        silent = quiet or secret
        if self._args.runner is None:
            return local.Command(name, logging=local.Logging.NONE if silent else None, **given)
        way = connection(self._args.runner.host, self._args.runner.login)
        return remote.Command(name, connection=way, logging=remote.Logging.NONE if silent else None, **given)


def folder_of(args: KubesprayClusterArgs) -> str:
    """The cluster's folder where kubespray runs, for a shell: `~` is the home of whoever runs it."""
    return f"{args.directory}/{args.cluster}"


def install_line(args: KubesprayClusterArgs) -> str:
    """The shell's line that installs kubespray, and what runs it: there is nothing yet that could be called."""
    folder, python = folder_of(args), shlex.quote(args.kubespray.python)
    return f"umask 077; mkdir -p {folder} && exec {python} -c {shlex.quote(BOOTSTRAP)} {folder}"


def install_input(args: KubesprayClusterArgs) -> str:
    """What the installation is told: the modules that run kubespray, and where kubespray comes from."""
    return json.dumps({"files": sources(), "source": source(args)}, indent=1)


def node_input(node: KubesprayNode) -> str:
    """What a machine's own resource says of it."""
    return json.dumps({"node": node.name, **described(node)}, indent=1)


def converge_input(args: KubesprayClusterArgs, secrets: str | None) -> str:
    """What the run for all is told: everything that is wanted, and a word that changes with secret variables."""
    told = {"desired": desired(args), "secrets": secrets, "secret_hosts": [*secret_hosts(args)], "ssh": ssh_of(args)}
    return json.dumps(told, indent=1)


def secret_hosts(args: KubesprayClusterArgs) -> dict[str, dict[str, pulumi.Input[str]]]:
    """Secret variables of hosts that have some, by host."""
    return {node.name: dict(node.secret_variables) for node in args.nodes if node.secret_variables}


def kubeconfig_input(args: KubesprayClusterArgs, identity: str | None) -> str:
    """What a kubeconfig hangs on: whose it is, which one, and where it leads."""
    told = {"cluster": identity, "generation": str(args.kubeconfig_generation), "server": server_url(args)}
    return json.dumps(told, indent=1)


def ssh_of(args: KubesprayClusterArgs) -> dict[str, Any] | None:
    """How the hosts are reached: a part of the client's configuration for each, and the rest, which is for all."""
    login = args.login
    if login is None:
        return None
    key = f"{FOLDER}/identity" if login.private_key is not None else None

    def files(hosts: Sequence[SshHost]) -> dict[str, str]:
        config = ssh_config(hosts, login, known_hosts_file=f"{FOLDER}/known_hosts", identity_file=key)
        return {"ssh_config": config, "known_hosts": known_hosts(hosts, login)}

    rest = files([])
    parts = {}
    for node in args.nodes:
        if "ansible_connection" not in node.variables:
            parts[node.name] = {name: text.removesuffix(rest[name]) for name, text in files([ssh_host(node)]).items()}
    return {"hosts": parts, "rest": rest}


def sources() -> dict[str, str]:
    """The modules that run kubespray, by file. Their package has nothing else in it there."""
    files = {f"components/{module.__name__.rpartition('.')[2]}.py": inspect.getsource(module) for module in MODULES}
    return {"components/__init__.py": ""} | files


def source(args: KubesprayClusterArgs) -> kubespray_install.Source:
    """Where kubespray comes from, as it is sent."""
    given = args.kubespray
    return {
        "version": given.version,
        "url": given.url,
        "commit": given.commit,
        "folder": given.folder,
        "venv": given.venv,
        "python": given.python,
        "package_index": given.package_index,
    }
