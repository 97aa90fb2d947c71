"""Commands of the driver, which run kubespray on one cluster: one run at a time, only the necessary playbooks, resuming
where the last run ended.

Sent to the machine that runs kubespray, with the modules that it imports. Payloads arrive on standard input
(payloads.py). The cluster's folder contains the state, with a journal of the cluster's members. Progress goes to
standard error, results to standard output.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal

from gpufleet.bare_metal.kubespray.driver.folder import Cluster, RunError, say
from gpufleet.bare_metal.kubespray.driver.install import InstallError, install
from gpufleet.bare_metal.kubespray.driver.move import adopt, hand_over
from gpufleet.bare_metal.kubespray.driver.payloads import (
    ConvergePayload,
    EntrustPayload,
    InstallPayload,
    KubeconfigPayload,
    RemovePayload,
    SshConnections,
    SshFiles,
)
from gpufleet.bare_metal.kubespray.driver.playbook import Outcome
from gpufleet.bare_metal.kubespray.driver.settings import left_by_hand
from gpufleet.bare_metal.kubespray.driver.steps import (
    CONTROL_PLANE,
    ETCD,
    RESET,
    Desired,
    Journal,
    Node,
    Step,
    change_problems,
    changed_variables,
    committed,
    dead_members,
    leaving,
    next_step,
    removals,
    whole,
    with_role,
    without_members,
)

FOLDER = "CLUSTER_FOLDER"
"""Placeholder for the cluster's folder in payloads."""

SECRETS = "inventory/group_vars/all/secrets.yml"
"""File with secret variables of all hosts, in the cluster's folder."""

SECRET_VARIABLES = "secret variables"
"""Key of the digests of secret variables, beside the groups of variables in a journal."""

HOST_SECRETS = "inventory/host_vars/{}/secrets.yml"
"""File with secret variables of one host."""

SSH_FILES: tuple[Literal["ssh_config"], Literal["known_hosts"]] = ("ssh_config", "known_hosts")
"""Files of the SSH client, in the cluster's folder."""

WHEN_MOVED = ("install", "hand-over", "adopt")
"""Commands that a machine still runs after the cluster's journal has moved to another."""

DELETIONS = ("remove", "reset")
"""Commands that Pulumi runs when it deletes resources. After a move it deletes those of the old machine."""

REMOVAL_PLAYBOOKS = ("remove-node.yml", "recover-control-plane.yml")
"""Playbooks that remove members."""

CLUSTER_INFO_FILE = "cluster-info.yml"
"""The driver's own playbook, in the cluster's folder."""

CLUSTER_INFO = """\
- name: Name the API server that nodes join at
  hosts: kube_control_plane[0]
  gather_facts: false
  roles: [kubespray_defaults]
  tasks:
    - name: Replace the server in cluster-info
      vars:
        address: "{{ '[' ~ main_access_ip ~ ']' if ':' in main_access_ip else main_access_ip }}"
      shell: >-
        set -o pipefail; {{ kubectl }} get configmap cluster-info --namespace kube-public --output yaml
        | sed 's#server: .*#server: https://{{ address }}:{{ kube_apiserver_port }}#'
        | {{ kubectl }} replace --filename -
      args: {executable: /bin/bash}
      when: loadbalancer_apiserver is not defined
"""
"""Playbook that updates cluster-info, by which kubeadm joins new nodes. It names the original first control plane node;
kubespray leaves the change to an administrator (docs/operations/nodes.md:114-118 at v2.31.0)."""

LAUNCHER = """\
#!/bin/sh
export PYTHONPATH={folder}/driver PYTHONDONTWRITEBYTECODE=1
exec {venv}/bin/python -m gpufleet.bare_metal.kubespray.driver.converge {folder} "$@"
"""


def failure(step: Step, outcome: Outcome, log: pathlib.Path) -> RunError:
    """Return the error of a failed run."""
    errors = {**outcome.failed, **outcome.unreachable}
    failed = [f"host {host}: {error}" for host, error in sorted(errors.items())]
    status = f"exit status {outcome.code}" if outcome.code >= 0 else f"ended by signal {-outcome.code}"
    lines = [f"{step['playbook']} failed: {len(failed)} of {len(step['inventory'])} hosts, {status}", *failed]
    if not failed:
        lines.append(_last_line(log))
    lines.append(f"log: {log} on {socket.gethostname()}")
    lines.append("completed steps are kept; fix the cause, then run `pulumi up` again to continue")
    return RunError("\n".join(lines))


def _last_line(log: pathlib.Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"the run was interrupted; its last line: {lines[-1][:400]}" if lines else "the run printed nothing"


def with_all_secrets(folder: pathlib.Path, desired: Desired) -> Desired:
    """Return the desired state with digests of secret variables, so that a changed secret counts as a change of its
    variable."""
    secret = folder / SECRETS
    lines = secret.read_text().splitlines() if secret.exists() else []
    digests = {
        line.partition(":")[0].strip('"'): hashlib.sha256(line.encode()).hexdigest()
        for line in lines
        if line.startswith('"')
    }
    nodes = {name: with_secrets(folder, name, node) for name, node in desired["nodes"].items()}
    variables = desired["variables"] | ({SECRET_VARIABLES: digests} if digests else {})
    return desired | {"nodes": nodes, "variables": variables}


def with_secrets(folder: pathlib.Path, name: str, node: Node) -> Node:
    """Return the node with a digest of its secret variables, so that a changed secret counts as a change of the
    node."""
    file = folder / HOST_SECRETS.format(name)
    return node | {"secrets": hashlib.sha256(file.read_bytes()).hexdigest()} if file.exists() else node


# -- commands ---------------------------------------------------------------------------------------------------------


def set_up(cluster: Cluster, payload: InstallPayload) -> None:
    """Install kubespray if it is missing, and the script that runs all other commands."""
    with cluster.locked():
        checkout, venv = install(cluster.folder.parent / "kubespray", payload["source"], say)
        cluster.write("kubespray.json", json.dumps({"checkout": str(checkout), "venv": str(venv)}))
        cluster.write("run", LAUNCHER.format(folder=shlex.quote(str(cluster.folder)), venv=shlex.quote(str(venv))))
        (cluster.folder / "run").chmod(0o700)
    print(f"kubespray {payload['source']['version']}")


def enroll(cluster: Cluster) -> None:
    """Give the cluster an identity, which it keeps until it is reset."""
    cluster.require_lasting_machine()
    with cluster.locked():
        journal = cluster.journal()
        if not journal["identity"]:
            journal = journal | {"identity": secrets.token_hex(8)}
            cluster.keep(journal)
    print(journal["identity"])


def enrolled(cluster: Cluster) -> None:
    """Print the identity of an existing cluster. Raise RunError if its journal is not on this machine."""
    require_journal(cluster, None)
    print(cluster.journal()["identity"])


def require_journal(cluster: Cluster, identity: str | None) -> None:
    """Raise RunError if the journal of the cluster with this identity is not on this machine. Without its journal, a
    cluster would be set up as a new one. None stands for any cluster."""
    found = cluster.journal()["identity"]
    if not found or (identity is not None and found != identity):
        raise RunError(
            f"{cluster.folder}: has {'the journal of another cluster' if found else 'no journal of this cluster'}, on"
            f" {socket.gethostname()}; run Pulumi on the machine that has it, restore runOn and directory, or set"
            " movedFrom to the machine that ran kubespray before"
        )


def entrust(cluster: Cluster, payload: EntrustPayload) -> None:
    """Store the secrets, and print a random revision ID that changes when a secret variable changes."""
    with cluster.locked():
        if payload["identity_file"]:
            cluster.write("identity", payload["identity_file"].rstrip("\n") + "\n")
        files = {SECRETS: payload["variables"]}
        files |= {HOST_SECRETS.format(host): variables for host, variables in payload["hosts"].items()}
        journal = cluster.journal()
        changed = not journal["secrets"]
        for name, variables in files.items():
            text, file = literal(variables), cluster.folder / name
            if not file.exists() or file.read_text() != text:
                cluster.write(name, text)
                changed = True
        if changed:
            journal = journal | {"secrets": secrets.token_hex(8)}
            cluster.keep(journal)
    print(journal["secrets"])


def literal(variables: Mapping[str, str]) -> str:
    """Return variables as YAML whose values Ansible does not evaluate as templates: a password may contain `{{`."""
    lines = [f"{json.dumps(name)}: !unsafe {_quoted(value)}\n" for name, value in sorted(variables.items())]
    return "".join(lines) or "{}\n"


def _quoted(text: str) -> str:
    """Return a double-quoted YAML scalar. YAML has no surrogate pairs, so JSON's escapes are not usable."""
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", json.dumps(text, ensure_ascii=False))


def converge(cluster: Cluster, payload: ConvergePayload) -> None:
    """Bring the cluster to the desired state, except for removals: deleting a node's resource removes the node."""
    desired = payload["desired"]
    with cluster.locked() as lock:
        if payload["cluster"] is not None:
            require_journal(cluster, payload["cluster"])
        if problems := change_problems(cluster.journal(), desired):
            raise RunError("\n".join(map(str, problems)))
        stage(cluster, payload)
        brought_up(cluster, desired, lock)
    print(f"{len(desired['nodes'])} nodes, Kubernetes {desired['kubernetes']}")


def stage(cluster: Cluster, payload: ConvergePayload) -> None:
    """Write the desired state to the folder, for removals and the reset, whose payloads lack it. Delete secrets that
    are no longer set."""
    desired = payload["desired"]
    cluster.write("desired.json", json.dumps(desired, indent=1))
    for group, variables in desired["variables"].items():
        cluster.write(f"inventory/group_vars/{group}/kubespray.yml", json.dumps(variables, indent=1))
    for file in sorted(cluster.folder.glob("inventory/group_vars/*/kubespray.yml")):
        if file.parent.name not in desired["variables"]:
            file.unlink()
    if payload["secrets"] is None:
        for name in ("identity", SECRETS):
            (cluster.folder / name).unlink(missing_ok=True)
    removed_nodes = leaving(cluster.journal(), desired)
    # Nodes that are still to be removed need their secrets, such as the password of sudo.
    for folder in cluster.folder.glob("inventory/host_vars/*"):
        if folder.name not in {*payload["secret_hosts"], *removed_nodes}:
            shutil.rmtree(folder)
    if payload["ssh"]:
        stage_ssh(cluster, payload["ssh"], {*desired["nodes"], *removed_nodes})


def stage_ssh(cluster: Cluster, connections: SshConnections, wanted: Set[str]) -> None:
    """Write the SSH client's files. A host that is being removed keeps its previous part."""
    file = cluster.folder / "ssh.json"
    before: dict[str, SshFiles] = json.loads(file.read_text()) if file.exists() else {}
    known = {host: files for host, files in (before | connections["hosts"]).items() if host in wanted}
    cluster.write("ssh.json", json.dumps(known, indent=1))
    for name in SSH_FILES:
        text = "".join(files[name] for files in known.values()) + connections["rest"][name]
        cluster.write(name, text.replace(FOLDER, str(cluster.folder)))


def brought_up(cluster: Cluster, desired: Desired, lock: int) -> None:
    """Run one step after another until the desired state is reached, and commit each to the journal."""
    desired = with_all_secrets(cluster.folder, desired)
    while step := next_step(cluster.journal(), desired):
        journal = cluster.journal()
        if step["playbook"] in REMOVAL_PLAYBOOKS:
            member_removed(cluster, desired, step, lock)
            continue
        started = {name: desired["nodes"][name] for name in step["brings"] if name not in journal["members"]}
        cluster.keep(journal | {"touched": journal["touched"] | started})
        if step["limit"]:
            gather(cluster, step, lock)
        outcome, log = cluster.run(step, lock)
        if not outcome.well:
            raise failure(step, outcome, log)
        after = committed(cluster.journal(), desired, step)
        cluster.keep(after)
        for line in left_by_hand(_new_values(journal, after)):
            say(line)
    say("the cluster matches its desired state")


def _new_values(before: Journal, after: Journal) -> dict[str, Any]:
    """Return the new values of variables that a step has changed, by name."""
    if "variables" not in before:
        return {}
    changed = changed_variables(before, {"variables": after.get("variables", {})}) or []  # type: ignore[typeddict-item]
    values = {name: value for variables in after.get("variables", {}).values() for name, value in variables.items()}
    return {name: values.get(name) for name in changed}


def member_removed(cluster: Cluster, desired: Desired, step: Step, lock: int) -> None:
    """Remove dead members. If the first control plane node is among them, update cluster-info, by which kubeadm joins
    new nodes."""
    if step["limit"]:
        gather(cluster, step, lock)
    outcome, log = cluster.run(step, lock)
    if not outcome.well:
        raise failure(step, outcome, log)
    control = with_role(step["inventory"], CONTROL_PLANE)
    if step.get("broken") and control[0] in step["brings"]:
        cluster.write(CLUSTER_INFO_FILE, CLUSTER_INFO)
        survivors = {name: node for name, node in step["inventory"].items() if name not in step["brings"]}
        update = whole(str(cluster.folder / CLUSTER_INFO_FILE), survivors, [])
        update["limit"] = with_role(survivors, CONTROL_PLANE)[:1]
        outcome, log = cluster.run(update, lock)
        if not outcome.well:
            raise failure(update, outcome, log)
    cluster.keep(committed(cluster.journal(), desired, step))


def gather(cluster: Cluster, step: Step, lock: int) -> None:
    """Gather the facts of all hosts, which kubespray requires for a run that is limited to some of them
    (docs/operations/nodes.md at v2.31.0). A node that is down keeps its previous facts, unless the step needs it."""
    down = unreachable(cluster, step, lock)
    missing = [name for name in down if not (cluster.folder / "facts" / name).exists()]
    if missing:
        raise RunError(
            f"{step['playbook']}: {', '.join(missing)} is unreachable, and has no facts of an earlier run; start it, or"
            " remove it from the nodes and list it in lost"
        )


def unreachable(cluster: Cluster, step: Step, lock: int) -> list[str]:
    """Gather the facts of all nodes, and return the nodes that are down and not needed by the step.

    Raise RunError if a needed node is down.
    """
    broken = step.get("broken", [])
    working = {name: node for name, node in step["inventory"].items() if name not in broken}
    facts = whole("playbooks/facts.yml", working, [], {"any_errors_fatal": False})
    facts |= {"inventory": step["inventory"], "broken": broken}
    outcome, log = cluster.run(facts, lock)
    # kubespray delegates the work on a node to the first node of either group.
    firsts = [*with_role(working, CONTROL_PLANE)[:1], *with_role(working, ETCD)[:1]]
    needed = {*step["brings"], *step["limit"], *firsts} - {*broken}
    if not outcome.recap or outcome.failed or needed & set(outcome.unreachable):
        raise failure(facts, outcome, log)
    for name in outcome.unreachable:
        say(f"{name} is unreachable; continuing without it")
    return list(outcome.unreachable)


def remove(cluster: Cluster, payload: RemovePayload) -> None:
    """Remove a node that is no longer desired, and every other such node in the same run."""
    name = payload["node"]
    with cluster.locked() as lock:
        desired = cluster.desired()
        if desired is None or name in desired["nodes"]:
            say(f"{name} is still in the list of nodes; not removed")
            return
        if name not in leaving(cluster.journal(), desired):
            say(f"{name} is not in the cluster")
            return
        if not cluster.journal()["members"]:
            # No run has succeeded yet, so there is no cluster to remove it from.
            forget(cluster, desired)
            return
        while dead := dead_members(cluster.journal(), desired):
            member_removed(cluster, desired, without_members(cluster.journal(), desired, dead), lock)
        for step in removals(cluster.journal(), desired):
            removed(cluster, desired, step, lock)
        brought_up(cluster, desired, lock)


def forget(cluster: Cluster, desired: Desired) -> None:
    """Drop nodes from the journal that are no longer desired before any run has succeeded."""
    journal = cluster.journal()
    gone = leaving(journal, desired)
    say(f"the cluster has not been created yet; {', '.join(gone)} may have parts of Kubernetes installed")
    cluster.keep(journal | {"touched": {key: node for key, node in journal["touched"].items() if key not in gone}})


def removed(cluster: Cluster, desired: Desired, step: Step, lock: int) -> None:
    """Run one removal. It skips remaining workers that are down."""
    if "reset_nodes" not in step["extra"]:
        step = without(step, unreachable(cluster, step, lock))
    outcome, log = cluster.run(step, lock)
    if not outcome.well:
        raise failure(step, outcome, log)
    cluster.keep(committed(cluster.journal(), desired, step))
    for name in step["brings"]:
        shutil.rmtree((cluster.folder / HOST_SECRETS.format(name)).parent, ignore_errors=True)


def without(step: Step, down: Sequence[str]) -> Step:
    """Return the step without some nodes. A limit must name Ansible's `localhost` explicitly."""
    limit = ["all", "localhost", *(f"!{name}" for name in down)] if down else []
    return step | {"limit": limit}


def reset(cluster: Cluster) -> None:
    """Remove Kubernetes from every node in one run, then delete the cluster's journal and secrets."""
    with cluster.locked() as lock:
        journal = cluster.journal()
        nodes = journal["touched"] | journal["members"]
        desired = cluster.desired()
        lost = [name for name in (desired["lost"] if desired else []) if name in nodes]
        if nodes:
            step = without(whole("reset.yml", nodes, [], dict(RESET)), lost)
            outcome, log = cluster.run(step, lock)
            if not outcome.well:
                raise failure(step, outcome, log)
        for name in ("journal.json", "desired.json", "identity"):
            (cluster.folder / name).unlink(missing_ok=True)
        for name in ("inventory", "facts", "cp", "tmp"):
            shutil.rmtree(cluster.folder / name, ignore_errors=True)


def kubeconfig(cluster: Cluster, payload: KubeconfigPayload) -> None:
    """Print the administrator's kubeconfig. Let kubespray write the file only if it is missing or the generation has
    changed, because kubespray issues a new certificate each time."""
    import yaml

    artifact = cluster.folder / "inventory" / "artifacts" / "admin.conf"
    served = cluster.folder / "inventory" / "artifacts" / "served"
    with cluster.locked() as lock:
        generation = served.read_text() if served.exists() else payload["generation"]
        if not artifact.exists() or generation != payload["generation"]:
            members = cluster.journal()["members"]
            # Only the first machine of the control plane issues it, so the others may be down.
            step = whole("cluster.yml", members, []) | {"limit": with_role(members, CONTROL_PLANE)[:1]}
            gather(cluster, step, lock)
            outcome, log = cluster.run(step, lock, "--tags", "client")
            if not outcome.well:
                raise failure(step, outcome, log)
        config = yaml.safe_load(artifact.read_text())
        cluster.write("inventory/artifacts/served", payload["generation"])
    if payload["server"]:
        for each in config["clusters"]:
            each["cluster"]["server"] = payload["server"]
    print(yaml.safe_dump(config, sort_keys=False), end="")


def run(cluster: Cluster, command: str, payload: Any) -> None:
    """Run a command with its payload, as decoded from JSON."""
    if (destination := cluster.moved_to()) and command in DELETIONS:
        say(f"the journal of this cluster has moved to {destination}; nothing to do here")
        return
    if destination and command not in WHEN_MOVED:
        raise RunError(
            f"{cluster.folder}: the journal of this cluster has moved to {destination}; set runOn to that machine, or"
            " movedFrom to move the journal back"
        )
    match command:
        case "install":
            set_up(cluster, payload)
        case "enroll":
            enroll(cluster)
        case "enrolled":
            enrolled(cluster)
        case "hand-over":
            hand_over(cluster, payload)
        case "adopt":
            adopt(cluster, payload)
        case "entrust":
            entrust(cluster, payload)
        case "converge":
            converge(cluster, payload)
        case "remove":
            remove(cluster, payload)
        case "reset":
            reset(cluster)
        case "kubeconfig":
            kubeconfig(cluster, payload)
        case _:
            raise RunError(f"{command}: unknown command; the driver's commands are in {pathlib.Path(__file__).name}")


def main(folder: str, command: str, payload: Any) -> int:
    """Run a command on the cluster of a folder, and return the exit code."""
    try:
        run(Cluster(pathlib.Path(folder)), command, payload)
    except (RunError, InstallError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or folder}: {error.strerror} on {socket.gethostname()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # pulumi-command passes no standard input when it deletes a resource without `stdin`.
    text = sys.stdin.read()
    sys.exit(main(sys.argv[1], sys.argv[2], json.loads(text) if text.strip() else {}))
