"""KubesprayCluster: Kubernetes on existing machines, created and maintained by kubespray."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

import pulumi
from pulumi_command import local, remote

from gpufleet import problem
from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs, KubesprayNode, KubesprayRunner
from gpufleet.bare_metal.kubespray.driver import converge, folder, install, move, payloads, playbook, settings, steps
from gpufleet.bare_metal.kubespray.driver.converge import FOLDER
from gpufleet.bare_metal.kubespray.inventory import described, desired, server_url, ssh_host
from gpufleet.bare_metal.kubespray.rules import cluster_problems
from gpufleet.bare_metal.ssh import SshHost, connection, known_hosts, ssh_config
from gpufleet.problem import refuse

Command = local.Command | remote.Command
"""A command on the machine that runs Pulumi, or on another."""

MODULES: Sequence[ModuleType] = (converge, folder, install, move, payloads, playbook, settings, steps, problem)
"""The driver and what it imports, sent to the machine that runs kubespray."""

BOOTSTRAP = """\
import json, os, pathlib, sys
if sys.version_info < (3, 11): sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}; use 3.11 to 3.13")
folder, payload = os.path.abspath(sys.argv[1]), json.load(sys.stdin)
for name, text in payload["files"].items():
    file = pathlib.Path(folder, "driver", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".part").write_text(text)
    file.with_suffix(".part").replace(file)
sys.path.insert(0, os.path.join(folder, "driver"))
from gpufleet.bare_metal.kubespray.driver import converge
sys.exit(converge.main(folder, "install", payload))
"""


class KubesprayCluster(pulumi.ComponentResource):
    """Kubernetes on existing machines, created by kubespray.

    Every machine is a resource of its own. One run of kubespray adds all new and changed machines; deleting a machine's
    resource drains and removes it. The journal of the cluster's machines is on the machine that runs kubespray, so the
    next `pulumi up` resumes an interrupted run. Runs never overlap there.

    `pulumi destroy` is refused while `protect` is set. Otherwise it resets the whole cluster in one run, instead of
    removing machine by machine.
    """

    ready: pulumi.Resource
    """The latest run of kubespray; depend on it to wait until the cluster and its nodes exist."""
    kubeconfig: pulumi.Output[str]
    """The administrator's kubeconfig, a secret. It only changes when `kubeconfig_generation` changes or the cluster is
    replaced. Its certificate is valid for one year."""

    def __init__(self, name: str, args: KubesprayClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, cluster_problems(args))
        super().__init__("gpu-runners:index:KubesprayCluster", name, None, opts)
        self._args = args
        cluster = self._cluster(name)
        nodes = [self._node(name, node, cluster) for node in args.nodes]
        needs = [*args.needs, *nodes]
        credentials = self._credentials(name, cluster)
        needs += [credentials] if credentials else []
        # A random revision ID that is no secret, so that a preview can show what else has changed.
        revision = pulumi.Output.unsecret(credentials.stdout) if credentials else pulumi.Output.from_input(None)
        identity = pulumi.Output.unsecret(cluster.stdout)
        self.ready = self._command(
            f"{name}-converge",
            create="converge",
            stdin=pulumi.Output.all(revision, identity).apply(lambda known: converge_input(args, *known)),
            needs=needs,
        )
        fetched = self._command(
            f"{name}-kubeconfig",
            create="kubeconfig",
            stdin=identity.apply(lambda identity: kubeconfig_input(args, identity)),
            needs=[self.ready],
            secret=True,
        )
        self.kubeconfig = pulumi.Output.secret(fetched.stdout)
        self.register_outputs({"kubeconfig": self.kubeconfig, "kubernetes_version": args.kubernetes_version})

    def _cluster(self, name: str) -> Command:
        """Register the cluster. Deleting it resets its machines, so what is in the cluster is deleted with it."""
        args = self._args
        installed = self._installed(f"{name}-kubespray", args.runner)
        if args.moved_from is not None:
            packed = self._handed_over(name)
            begin: dict[str, Any] = {"create": "adopt", "stdin": packed.stdout, "needs": [installed, packed]}
        else:
            # Local and remote commands are different types. With an alias, Pulumi tries to update a resource of the
            # other type, which fails or finds no journal. Without one, it would delete it, and so reset the cluster.
            other = "command:local:Command" if args.runner else "command:remote:Command"
            begin = {"create": "enroll", "update": "enrolled", "stdin": enroll_input(args), "needs": [installed]}
            begin["aliases"] = [pulumi.Alias(type_=other)]
        return self._command(f"{name}-cluster", delete="reset", protect=args.protect, **begin)

    def _handed_over(self, name: str) -> Command:
        """Seal the journal on the machine that ran kubespray before, and read it. If one of the two machines is local,
        this command takes over the URN of the old one's cluster, so that Pulumi does not delete that."""
        before = None if self._args.moved_from == "here" else self._args.moved_from
        prefix = f"{name}-previous" if before and self._args.runner else name
        return self._command(
            f"{prefix}-cluster",
            at=before,
            create="hand-over",
            stdin=hand_over_input(self._args),
            needs=[self._installed(f"{prefix}-kubespray", before)],
            secret=True,
        )

    def _installed(self, name: str, at: KubesprayRunner | None) -> Command:
        """Install kubespray, its Ansible, and the driver on a machine; None for the one that runs Pulumi."""
        line, stdin = install_line(self._args), install_input(self._args)
        return self._command(name, at=at, create=line, stdin=stdin, shell=True)

    def _node(self, name: str, node: KubesprayNode, cluster: Command) -> Command:
        """Register a machine. Creating it does nothing, because the common run adds it; deleting it removes the
        machine."""
        return self._command(
            f"{name}-node-{node.name}",
            delete="remove",
            stdin=node_input(node),
            needs=[cluster],
            deleted_with=cluster,
        )

    def _credentials(self, name: str, cluster: Command) -> Command | None:
        """Register the secrets separately, so that a preview can show everything else."""
        key = self._args.login.private_key if self._args.login else None
        hosts = secret_hosts(self._args)
        if key is None and not self._args.secret_variables and not hosts:
            return None
        secrets = pulumi.Output.all(key, dict(self._args.secret_variables), hosts)
        return self._command(
            f"{name}-credentials",
            create="entrust",
            stdin=pulumi.Output.secret(secrets.apply(lambda resolved: entrust_input(*resolved))),
            needs=[cluster],
            quiet=True,
        )

    def _command(
        self,
        name: str,
        *,
        create: str | None = None,
        update: str | None = None,
        delete: str | None = None,
        stdin: pulumi.Input[str] | None = None,
        needs: Sequence[pulumi.Resource] = (),
        at: KubesprayRunner | Literal["runner"] | None = "runner",
        shell: bool = False,
        quiet: bool = False,
        secret: bool = False,
        **options: Any,
    ) -> Command:
        """Register one command of the driver `at` a machine; None for the one that runs Pulumi.

        Its payload goes to standard input, which no process list and no error shows. `triggers` are not used:
        pulumi-command replaces, and so deletes, a resource whose triggers change
        (provider/pkg/provider/common/inputs.go at v1.2.1).
        """
        runner = self._args.runner if at == "runner" else at
        given: dict[str, Any] = {
            "create": create if shell else create and driver_line(self._args, create),
            "update": update and driver_line(self._args, update),
            "delete": delete and driver_line(self._args, delete),
            "stdin": stdin,
            # The output of a long run does not fit into the environment of a process.
            "add_previous_output_in_env": False,
            "opts": pulumi.ResourceOptions(
                parent=self,
                depends_on=[*needs],
                additional_secret_outputs=["stdout", "stderr"] if secret else None,
                **options,
            ),
        }
        silent = quiet or secret
        if runner is None:
            return local.Command(name, logging=local.Logging.NONE if silent else None, **given)
        way = connection(runner.host, runner.login)
        return remote.Command(name, connection=way, logging=remote.Logging.NONE if silent else None, **given)


def folder_of(args: KubesprayClusterArgs) -> str:
    """Return the cluster's folder on the machine that runs kubespray, for a shell; `~` is its user's home."""
    return f"{args.directory}/{args.cluster}"


def driver_line(args: KubesprayClusterArgs, command: str) -> str:
    """Return the shell command that runs a command of the driver. A machine without the driver, such as an ephemeral
    agent, says what to do."""
    run = f"{folder_of(args)}/run"
    missing = (
        f"kubespray's journal of {args.cluster} is not on this machine; run Pulumi where it is, or move it to a bastion"
        " (movedFrom)"
    )
    return f'test -x {run} || {{ echo "{missing}" >&2; exit 1; }}; exec {run} {command}'


def install_line(args: KubesprayClusterArgs) -> str:
    """Return the shell command that installs kubespray and the driver. It contains the installer, because nothing is
    installed yet."""
    folder, python = folder_of(args), shlex.quote(args.kubespray.python)
    return f"umask 077; mkdir -p {folder} && exec {python} -c {shlex.quote(BOOTSTRAP)} {folder}"


def install_input(args: KubesprayClusterArgs) -> str:
    """Return the payload of `install` as JSON."""
    payload: payloads.InstallPayload = {"files": sources(), "source": source(args)}
    return json.dumps(payload, indent=1)


def entrust_input(
    identity_file: str | None, variables: dict[str, str], host_variables: dict[str, dict[str, str]]
) -> str:
    """Return the payload of `entrust` as JSON."""
    payload: payloads.EntrustPayload = {
        "identity_file": identity_file,
        "variables": variables,
        "hosts": host_variables,
    }
    return json.dumps(payload, sort_keys=True)


def node_input(node: KubesprayNode) -> str:
    """Return the payload of `remove` as JSON."""
    payload: payloads.RemovePayload = {"node": node.name, **described(node)}
    return json.dumps(payload, indent=1)


def enroll_input(args: KubesprayClusterArgs) -> str:
    """Return the payload of `enroll` as JSON."""
    payload: payloads.EnrollPayload = {"machine": _machine(args)}
    return json.dumps(payload)


def hand_over_input(args: KubesprayClusterArgs) -> str:
    """Return the payload of `hand-over` as JSON."""
    payload: payloads.HandOverPayload = {"to": _machine(args)}
    return json.dumps(payload)


def _machine(args: KubesprayClusterArgs) -> str:
    """Return a description of the machine that runs kubespray."""
    runner = args.runner
    return f"{runner.host.name} ({runner.host.address})" if runner else "the machine that runs Pulumi"


def converge_input(args: KubesprayClusterArgs, secrets: str | None, identity: str | None) -> str:
    """Return the payload of `converge` as JSON. `secrets` is the revision ID that `entrust` prints, `identity` the
    cluster's that `enroll` prints."""
    payload: payloads.ConvergePayload = {
        "cluster": identity,
        "desired": desired(args),
        "secrets": secrets,
        "secret_hosts": [*secret_hosts(args)],
        "ssh": ssh_connections(args),
    }
    return json.dumps(payload, indent=1)


def secret_hosts(args: KubesprayClusterArgs) -> dict[str, dict[str, pulumi.Input[str]]]:
    """Return the secret variables by host, for hosts that have any."""
    return {node.name: dict(node.secret_variables) for node in args.nodes if node.secret_variables}


def kubeconfig_input(args: KubesprayClusterArgs, identity: str | None) -> str:
    """Return the payload of `kubeconfig` as JSON."""
    payload: payloads.KubeconfigPayload = {
        "cluster": identity,
        "generation": str(args.kubeconfig_generation),
        "server": server_url(args),
    }
    return json.dumps(payload, indent=1)


def ssh_connections(args: KubesprayClusterArgs) -> payloads.SshConnections | None:
    """Return the SSH configuration: a part for each host, and the rest, which applies to all of them."""
    login = args.login
    if login is None:
        return None
    key = f"{FOLDER}/identity" if login.private_key is not None else None

    def files(hosts: Sequence[SshHost]) -> payloads.SshFiles:
        config = ssh_config(hosts, login, known_hosts_file=f"{FOLDER}/known_hosts", identity_file=key)
        return {"ssh_config": config, "known_hosts": known_hosts(hosts, login)}

    rest = files([])
    parts: dict[str, payloads.SshFiles] = {}
    for node in args.nodes:
        if "ansible_connection" not in node.variables:
            part = files([ssh_host(node)])
            parts[node.name] = {
                "ssh_config": part["ssh_config"].removesuffix(rest["ssh_config"]),
                "known_hosts": part["known_hosts"].removesuffix(rest["known_hosts"]),
            }
    return {"hosts": parts, "rest": rest}


def sources() -> dict[str, str]:
    """Return the driver's modules by file name. Their package on the remote machine contains nothing else."""
    package, files = converge.__name__.split(".")[:-1], {}
    for depth in range(1, len(package) + 1):
        files["/".join([*package[:depth], "__init__.py"])] = ""
    return files | {f"{module.__name__.replace('.', '/')}.py": inspect.getsource(module) for module in MODULES}


def source(args: KubesprayClusterArgs) -> install.Source:
    """Return the source of kubespray as sent to the installer."""
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
