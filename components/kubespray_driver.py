"""Runs kubespray on one cluster: one run at a time, only what is needed, and again from where the last one ended.

Sent to the machine that runs kubespray, with the modules that it imports. What it is told comes by standard
input; what it knows lies in the cluster's folder, the journal of what is in the cluster among it. Progress goes to
standard error, results to standard output.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from components.kubespray_folder import Cluster, RunError, say
from components.kubespray_install import InstallError, install
from components.kubespray_playbook import Outcome
from components.kubespray_steps import (
    CONTROL_PLANE,
    ETCD,
    Desired,
    Node,
    Step,
    committed,
    leaving,
    next_step,
    refusals,
    removals,
    whole,
    with_role,
)

FOLDER = "CLUSTER_FOLDER"
"""Stands for the cluster's folder in files that are sent, until they are there."""

SECRETS = "inventory/group_vars/all/secrets.yml"
"""Variables of all hosts that are secret, in the cluster's folder."""

HOST_SECRETS = "inventory/host_vars/{}/secrets.yml"
"""Those of one host."""

LAUNCHER = """\
#!/bin/sh
PYTHONPATH={folder}/driver PYTHONDONTWRITEBYTECODE=1 exec {venv}/bin/python -m components.kubespray_driver {folder} "$@"
"""


def failure(step: Step, outcome: Outcome, log: pathlib.Path) -> RunError:
    """What to tell of a run that failed."""
    bad = [f"host {host}: {said}" for host, said in sorted({**outcome.failed, **outcome.unreachable}.items())]
    ended = f"exit status {outcome.code}" if outcome.code >= 0 else f"ended by signal {-outcome.code}"
    lines = [f"{step['playbook']} failed: {len(bad)} of {len(step['inventory'])} hosts, {ended}", *bad]
    if not bad:
        lines.append(_last_words(log))
    lines.append(f"log: {log} on {socket.gethostname()}")
    lines.append("what has been done stays; run `pulumi up` again once it is mended, and it goes on")
    return RunError("\n".join(lines))


def _last_words(log: pathlib.Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"it ended in its middle; its last line: {lines[-1][:400]}" if lines else "it printed nothing"


def settings_of(folder: pathlib.Path, desired: Desired) -> str:
    """Digest of what holds for the whole cluster, secret variables included."""
    secret = folder / SECRETS
    text = json.dumps(desired["variables"], sort_keys=True) + (secret.read_text() if secret.exists() else "")
    return hashlib.sha256(text.encode()).hexdigest()


def with_secrets(folder: pathlib.Path, name: str, node: Node) -> Node:
    """The node with a digest of its secret variables, so that a change of them is one of the node."""
    file = folder / HOST_SECRETS.format(name)
    return node | {"secrets": hashlib.sha256(file.read_bytes()).hexdigest()} if file.exists() else node


# -- commands ---------------------------------------------------------------------------------------------------------


def set_up(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Installs kubespray where it is missing, and the command that all others are given by."""
    with cluster.locked():
        checkout, venv = install(cluster.folder.parent / "kubespray", told["source"], say)
        cluster.write("kubespray.json", json.dumps({"checkout": str(checkout), "venv": str(venv)}))
        cluster.write("run", LAUNCHER.format(folder=shlex.quote(str(cluster.folder)), venv=shlex.quote(str(venv))))
        (cluster.folder / "run").chmod(0o700)
    print(f"kubespray {told['source']['version']}")


def enroll(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Gives the cluster an identity, which it keeps until it is reset."""
    with cluster.locked():
        journal = cluster.journal()
        if not journal["identity"]:
            journal = journal | {"identity": secrets.token_hex(8)}
            cluster.keep(journal)
    print(journal["identity"])


def entrust(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Keeps what is secret. Prints a word that changes when a secret variable does, and tells nothing of it."""
    with cluster.locked():
        if told["identity_file"]:
            cluster.write("identity", told["identity_file"].rstrip("\n") + "\n")
        files = {SECRETS: told["variables"]}
        files |= {HOST_SECRETS.format(host): variables for host, variables in told["hosts"].items()}
        journal = cluster.journal()
        changed = not journal["secrets"]
        for name, variables in files.items():
            text, file = json.dumps(variables, sort_keys=True, indent=1), cluster.folder / name
            if not file.exists() or file.read_text() != text:
                cluster.write(name, text)
                changed = True
        if changed:
            journal = journal | {"secrets": secrets.token_hex(8)}
            cluster.keep(journal)
    print(journal["secrets"])


def converge(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Brings the cluster to what is wanted; removals are left to the nodes' own resources."""
    desired: Desired = told["desired"]
    with cluster.locked() as lock:
        if refused := refusals(cluster.journal(), desired):
            raise RunError("\n".join(refused))
        stage(cluster, told)
        brought_up(cluster, desired, lock)
    print(f"{len(desired['nodes'])} nodes, Kubernetes {desired['kubernetes']}")


def stage(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Writes down what is wanted, for runs that are told nothing: removals and the reset. Secrets that nobody entrusts
    any more are gone with it."""
    desired: Desired = told["desired"]
    cluster.write("desired.json", json.dumps(desired, indent=1))
    for group, variables in desired["variables"].items():
        cluster.write(f"inventory/group_vars/{group}/kubespray.yml", json.dumps(variables, indent=1))
    for file in sorted(cluster.folder.glob("inventory/group_vars/*/kubespray.yml")):
        if file.parent.name not in desired["variables"]:
            file.unlink()
    if told["secrets"] is None:
        for name in ("identity", SECRETS):
            (cluster.folder / name).unlink(missing_ok=True)
    going = leaving(cluster.journal(), desired)
    # Whoever is to be removed is still logged in to.
    for folder in cluster.folder.glob("inventory/host_vars/*"):
        if folder.name not in {*told["secret_hosts"], *going}:
            shutil.rmtree(folder)
    if told["ssh"]:
        stage_ssh(cluster, told["ssh"], {*desired["nodes"], *going})


def stage_ssh(cluster: Cluster, told: Mapping[str, Any], wanted: Set[str]) -> None:
    """Writes how the hosts are reached and which keys they have: those that are to be removed as it was before."""
    file = cluster.folder / "ssh.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    known = {name: way for name, way in (before | told["hosts"]).items() if name in wanted}
    cluster.write("ssh.json", json.dumps(known, indent=1))
    for name in ("ssh_config", "known_hosts"):
        text = "".join(way[name] for way in known.values()) + told["rest"][name]
        cluster.write(name, text.replace(FOLDER, str(cluster.folder)))


def brought_up(cluster: Cluster, desired: Desired, lock: int) -> None:
    """Runs one step after another until all is there, and commits each."""
    desired = desired | {
        "nodes": {name: with_secrets(cluster.folder, name, node) for name, node in desired["nodes"].items()}
    }
    settings = settings_of(cluster.folder, desired)
    while step := next_step(cluster.journal(), desired, settings):
        journal = cluster.journal()
        begun = {name: desired["nodes"][name] for name in step["brings"] if name not in journal["members"]}
        cluster.keep(journal | {"touched": journal["touched"] | begun})
        if step["limit"]:
            gather(cluster, step, lock)
        outcome, log = cluster.run(step, lock)
        if not outcome.well:
            raise failure(step, outcome, log)
        cluster.keep(committed(cluster.journal(), desired, step, settings))
    say("nothing is left to do")


def gather(cluster: Cluster, step: Step, lock: int) -> None:
    """Gathers the facts of all hosts, without which kubespray refuses to be limited to some (docs/operations/nodes.md
    at v2.31.0). A worker that is down and that the step is not for keeps the facts it had, and does not hold it up."""
    down = unreachable(cluster, step, lock)
    missing = [name for name in down if not (cluster.folder / "facts" / name).exists()]
    if missing:
        raise RunError(
            f"{step['playbook']}: {', '.join(missing)} cannot be reached, and nothing is known of it from before; bring"
            " it up, or remove it from the list and name it among the lost nodes"
        )


def unreachable(cluster: Cluster, step: Step, lock: int) -> list[str]:
    """Workers that are down and that the step can do without, once facts of all others have been gathered.

    Raises RunError where it cannot do without.
    """
    facts = whole("playbooks/facts.yml", step["inventory"], [], {"any_errors_fatal": False})
    outcome, log = cluster.run(facts, lock)
    needed = {*step["brings"], *with_role(step["inventory"], CONTROL_PLANE), *with_role(step["inventory"], ETCD)}
    if not outcome.recap or outcome.failed or needed & set(outcome.unreachable):
        raise failure(facts, outcome, log)
    for name in outcome.unreachable:
        say(f"{name} cannot be reached; going on without it")
    return list(outcome.unreachable)


def remove(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Removes a node that is wanted no more, and with it whatever else is wanted no more: one run for all of them."""
    name = told["node"]
    with cluster.locked() as lock:
        desired = cluster.desired()
        if desired is None or name in desired["nodes"]:
            say(f"{name} is still in the list of nodes; nothing is removed")
            return
        if name not in leaving(cluster.journal(), desired):
            say(f"{name} is not in the cluster")
            return
        if not cluster.journal()["members"]:
            # Nothing has ever come up: there is no cluster to remove it from.
            forget(cluster, desired)
            return
        for step in removals(cluster.journal(), desired):
            removed(cluster, desired, step, lock)
        brought_up(cluster, desired, lock)


def forget(cluster: Cluster, desired: Desired) -> None:
    """Nodes that a first run began with are wanted no more before there was a cluster."""
    journal = cluster.journal()
    gone = leaving(journal, desired)
    say(f"no cluster has come up yet; {', '.join(gone)} may have parts of Kubernetes on it")
    cluster.keep(journal | {"touched": {key: node for key, node in journal["touched"].items() if key not in gone}})


def removed(cluster: Cluster, desired: Desired, step: Step, lock: int) -> None:
    """Runs one removal. Workers that are down and stay do not hold it up."""
    if "reset_nodes" not in step["extra"]:
        step = without(step, unreachable(cluster, step, lock))
    outcome, log = cluster.run(step, lock)
    if not outcome.well:
        raise failure(step, outcome, log)
    cluster.keep(committed(cluster.journal(), desired, step, ""))
    for name in step["brings"]:
        shutil.rmtree((cluster.folder / HOST_SECRETS.format(name)).parent, ignore_errors=True)


def without(step: Step, down: Sequence[str]) -> Step:
    """The step on every node but some. With a limit, Ansible's own `localhost` has to be named to be in it."""
    limit = ["all", "localhost", *(f"!{name}" for name in down)] if down else []
    return step | {"limit": limit}


def reset(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Takes Kubernetes off every node, in one run; forgets the cluster and its secrets."""
    with cluster.locked() as lock:
        journal = cluster.journal()
        there = journal["touched"] | journal["members"]
        desired = cluster.desired()
        lost = [name for name in (desired["lost"] if desired else []) if name in there]
        if there:
            step = without(
                whole("reset.yml", there, [], {"reset_confirmation": "yes", "skip_confirmation": True}), lost
            )
            outcome, log = cluster.run(step, lock)
            if not outcome.well:
                raise failure(step, outcome, log)
        for name in ("journal.json", "desired.json", "identity"):
            (cluster.folder / name).unlink(missing_ok=True)
        for name in ("inventory", "facts", "cp", "tmp"):
            shutil.rmtree(cluster.folder / name, ignore_errors=True)


def kubeconfig(cluster: Cluster, told: Mapping[str, Any]) -> None:
    """Prints the administrator's kubeconfig. kubespray makes a new certificate whenever it writes the file; it is
    written anew here only where it is missing or another one is asked for."""
    import yaml

    artifact = cluster.folder / "inventory" / "artifacts" / "admin.conf"
    served = cluster.folder / "inventory" / "artifacts" / "served"
    with cluster.locked() as lock:
        given = served.read_text() if served.exists() else told["generation"]
        if not artifact.exists() or given != told["generation"]:
            step = whole("cluster.yml", cluster.journal()["members"], [])
            outcome, log = cluster.run(step, lock, "--tags", "client")
            if not outcome.well:
                raise failure(step, outcome, log)
        config = yaml.safe_load(artifact.read_text())
        cluster.write("inventory/artifacts/served", told["generation"])
    if told["server"]:
        for each in config["clusters"]:
            each["cluster"]["server"] = told["server"]
    print(yaml.safe_dump(config, sort_keys=False), end="")


COMMANDS: Mapping[str, Callable[[Cluster, Mapping[str, Any]], None]] = {
    "install": set_up,
    "enroll": enroll,
    "entrust": entrust,
    "converge": converge,
    "remove": remove,
    "reset": reset,
    "kubeconfig": kubeconfig,
}


def main(folder: str, command: str, told: Mapping[str, Any]) -> int:
    """Runs a command on the cluster of a folder."""
    try:
        COMMANDS[command](Cluster(pathlib.Path(folder)), told)
    except (RunError, InstallError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or folder}: {error.strerror} on {socket.gethostname()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # A deletion of a resource without standard input has none.
    text = sys.stdin.read()
    sys.exit(main(sys.argv[1], sys.argv[2], json.loads(text) if text.strip() else {}))
