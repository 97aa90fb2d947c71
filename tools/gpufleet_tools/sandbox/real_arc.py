"""Sandbox with ARC's own controller and listeners, and charts rendered by Helm. Only GitHub is simulated."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpufleet.arc.controller import service_account_name
from gpufleet.arc.versions import minor_steps, numbers
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.plan import Plan, Release
from gpufleet_tools.plan.stack import STAND_IN, Stack
from gpufleet_tools.sandbox.arc import charts, control, programs
from gpufleet_tools.sandbox.arc.control import Configuration, Control
from gpufleet_tools.sandbox.arc_stand_in import COMPONENT
from gpufleet_tools.sandbox.control_plane import api_server, daemons, objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError

_APP_KEY = "github_app_private_key"
_UPGRADE_SECONDS, _POLL_SECONDS = 120.0, 0.2


def arc_version(plan: Plan) -> str:
    """Return the version of the stack's ARC. Raises SandboxError if it cannot run in the sandbox."""
    controller = arc_releases.controller(plan)
    if controller is None:
        raise SandboxError(f"{plan.stack}: --arc real: the stack does not install ARC")
    for release in arc_releases.scale_sets(plan):
        own = [key for key in ("proxy", "githubServerTLS") if release.values.get(key)]
        if own:
            raise SandboxError(
                f"{plan.stack}: --arc real: label {release.name} has {' and '.join(own)}, so its listener would connect"
                " to the real GitHub; omit --arc"
            )
    return controller.version


def installed_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return the objects that Helm would install for ARC's releases. Raises SandboxError."""
    require_programs(plan)
    return [each for release in arc_releases.all_of(plan) for each in charts.rendered(release)]


def upgraded_from(kubeconfig: Path, stack: Stack, plan: Plan) -> str | None:
    """Return the version of the controller in the sandbox if the plan has another one. Raises SandboxError if the stack
    file does not declare this upgrade between minor versions."""
    controller = arc_releases.controller(plan)
    assert controller is not None
    installed, wanted = _installed(kubeconfig, controller), controller.version
    if installed is None or installed == wanted:
        return None
    if minor_steps(installed, wanted) and stack.settings.arc.upgrade_from != installed:
        raise SandboxError(
            f"{plan.stack}: --arc real: ARC {installed} runs, and {wanted} would delete its scale sets; set arc.version"
            f" to {installed}, and run gpufleet upgrade arc {plan.stack} --to {wanted}"
        )
    return installed


def upgrade_controller(kubeconfig: Path, plan: Plan, installed: str, own: Sequence[Mapping[str, Any]]) -> None:
    """Apply the stack's own objects, among them the admission policy of the upgrade, then the controller, and wait
    until it runs. `pulumi up` has this order too. Raises SandboxError if the controller does not start."""
    controller = arc_releases.controller(plan)
    assert controller is not None
    version = controller.version
    objects.apply(kubeconfig, own, plan.stack)
    # Older CRDs would drop fields of live scale sets.
    left_out = ("CustomResourceDefinition",) if numbers(version) < numbers(installed) else ()
    chart = [each for each in charts.rendered(controller) if each["kind"] not in left_out]
    objects.apply(kubeconfig, chart, plan.stack)
    deadline = time.monotonic() + _UPGRADE_SECONDS
    while _running_versions(kubeconfig) != {version}:
        if time.monotonic() > deadline:
            raise SandboxError(f"{plan.stack}: --arc real: the controller of ARC {version} does not start")
        time.sleep(_POLL_SECONDS)


def _installed(kubeconfig: Path, controller: Release) -> str | None:
    """Return the version of the controller in the sandbox; None without one."""
    wanted = (controller.namespace, service_account_name(controller.name))
    for each in api_server.listed(kubeconfig, ("apps/v1", "Deployment"))[0]:
        metadata = each["metadata"]
        if (metadata["namespace"], metadata["name"]) == wanted:
            return str(metadata.get("labels", {}).get("app.kubernetes.io/version"))
    return None


def _running_versions(kubeconfig: Path) -> set[str]:
    """Return the versions of the controller's pods, with `pending` for one that does not run."""
    return {
        str(each["spec"]["containers"][0]["image"]).rpartition(":")[2]
        if each["status"].get("phase") == "Running"
        else "pending"
        for each in api_server.listed(kubeconfig, ("v1", "Pod"))[0]
        if each["metadata"].get("labels", {}).get(COMPONENT) == "controller-manager"
    }


def with_app_keys(manifests: Sequence[Mapping[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return the manifests with generated private keys in place of the stand-ins of GitHub Apps."""
    stand_in = base64.b64encode(STAND_IN.encode()).decode()
    result = []
    for each in manifests:
        data = each.get("data", {})
        if each["kind"] == "Secret" and data.get(_APP_KEY) == stand_in:
            metadata = each["metadata"]
            pem = app_key(folder, f"{metadata['namespace']}-{metadata['name']}")
            each = {**each, "data": {**data, _APP_KEY: base64.b64encode(pem.encode()).decode()}}
        result.append(dict(each))
    return result


def app_key(folder: Path, name: str) -> str:
    """Return the private key of a GitHub App in the sandbox, in PEM."""
    # Imported here: the import is slow, and a sandbox with a simulated ARC does not need it.
    from gpufleet_tools.sandbox.arc import certificates

    return certificates.app_key(folder / f"{name}.pem")


def folder_of(control_plane: ControlPlane) -> Path:
    """Return the folder of the real ARC's files."""
    folder = control_plane.directory / "arc"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def require_programs(plan: Plan) -> None:
    """Raise SandboxError if the programs of the stack's ARC are missing, or cannot run in the sandbox."""
    programs.find(arc_version(plan))


def runs(control_plane: ControlPlane) -> bool:
    """Return whether ARC's own programs run in a sandbox."""
    return control.control_file(control_plane).exists()


def assign(github: Control, mix: Mapping[str, int]) -> None:
    """Set the number of uncompleted jobs of each label. Those of other labels are cancelled."""
    unfinished = {job["label"] for job in github.call("state")["jobs"] if job["state"] != "completed"}
    for label in sorted(unfinished | {*mix}):
        github.call("assign", label=label, count=mix.get(label, 0))


def start(control_plane: ControlPlane, plan: Plan) -> Control:
    """Start the process that runs ARC, unless it runs already, and return its control. Raises SandboxError."""
    version = arc_version(plan)
    folder = folder_of(control_plane)
    links = folder / "programs"
    links.mkdir(exist_ok=True)
    # `down` finds processes by a path in the sandbox's folder.
    link = links / version
    link.unlink(missing_ok=True)
    link.symlink_to(programs.find(version))
    configuration = Configuration(
        kubeconfig=str(control_plane.kubeconfig),
        folder=str(folder),
        programs={each.name: str(each) for each in sorted(links.iterdir())},
        hosts=sorted(_hosts(arc_releases.scale_sets(plan))),
        key=_key(folder),
    )
    # Named by its contents: a changed configuration changes the command line, so that the process is restarted.
    file = folder / f"world-{_digest(configuration)}.json"
    configuration.write(file)
    with control_plane.locked():
        port = daemons.ports(control_plane, ("github",))["github"]
    process = control.write(control_plane, configuration, port)
    daemon = daemons.python("arc", "gpufleet_tools.sandbox.arc.world", str(file), str(port), ready=process.answers)
    daemons.started(control_plane, daemon)
    return process


def _hosts(scale_sets: Sequence[Release]) -> set[str]:
    urls = [str(each.values["githubConfigUrl"]) for each in scale_sets]
    return {host for url in urls if (host := urlsplit(url).hostname)}


def _key(folder: Path) -> str:
    file = folder / "key"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex(16))
    return file.read_text()


def _digest(configuration: Configuration) -> str:
    described = [configuration.programs, configuration.hosts]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:8]
