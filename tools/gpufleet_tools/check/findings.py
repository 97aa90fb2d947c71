"""Findings of a stack, with the acknowledgements of its stack file."""

from __future__ import annotations

import contextlib
import datetime
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from gpufleet.problem import Path
from gpufleet_stacks.settings.load import missing_secret
from gpufleet_stacks.settings.models.profiles.docker import DockerSidecar
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import InvalidSettings, StackFileProblem, dotted, listed, nearest
from gpufleet_stacks.settings.stack_file import StackFile, read, stack_files
from gpufleet_tools.check import compatibility_findings, pod_findings, runner_findings, shared_labels
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.labels.github_url import serves
from gpufleet_tools.plan.plan import Plan
from gpufleet_tools.policy import rules as policy
from gpufleet_tools.policy.pods import moves


@dataclass(frozen=True)
class Report:
    """The findings of one stack."""

    open: tuple[tuple[Finding, StackFileProblem], ...]
    """Findings without acknowledgement, each with its place in the file."""
    acknowledged: tuple[Finding, ...]
    """Findings with an acknowledgement that has not expired."""

    def lines(self) -> list[str]:
        """Return one line for each open finding."""
        return [
            str(StackFileProblem(at.file, at.line, at.path, f"{finding.severity}: {finding.message} [{finding.name}]"))
            for finding, at in self.open
        ]


def report(settings: Settings, file: StackFile, today: datetime.date, plan: Plan | None = None) -> Report:
    """Return the findings of a stack. Acknowledgements that expired before `today` have no effect. `plan` adds the
    findings about the program."""
    found = [finding for rule in RULES.values() for finding in rule(settings, file)]
    kind = _kind(settings)
    found += kind.findings(settings, today)
    found += compatibility_findings.findings(settings, file)
    found += runner_findings.findings(settings, file, today)
    found += shared_labels.findings(settings, file)
    found += expired_deprecations(settings, today)
    if plan is not None:
        from gpufleet_tools.check import policy_findings

        found += list(policy_findings.findings(plan, tuple(found), settings.host_paths))
    names_of_settings = _OF_EVERY_KIND | kind.NAMES
    found += _unused_acknowledgements(settings, found, names_of_settings, with_plan=plan is not None)
    acknowledged = tuple(finding for finding in found if _is_acknowledged(finding, settings, today))
    open_ = [finding for finding in found if finding not in acknowledged]
    placed = [(finding, file.problem(finding.path, finding.message)) for finding in open_]
    return Report(tuple(sorted(placed, key=lambda pair: (pair[1].line or 0, pair[0].name))), acknowledged)


def _kind(settings: Settings) -> ModuleType:
    """Import the module with the findings about the stack's kind of cluster."""
    return importlib.import_module(_KINDS[settings.cluster.kind])


_KINDS = {"bareMetal": "gpufleet_tools.check.bare_metal", "eks": "gpufleet_tools.check.eks.findings"}
"""Modules with the findings about each kind of cluster."""


def every_name() -> frozenset[str]:
    """Return the names of all findings about every kind of cluster."""
    of_kinds = (importlib.import_module(module).NAMES for module in _KINDS.values())
    return _OF_EVERY_KIND.union(*of_kinds, policy.NAMES)


def _is_acknowledged(finding: Finding, settings: Settings, today: datetime.date) -> bool:
    return any(
        entry.finding == finding.name and entry.path in (None, dotted(finding.path)) and today <= entry.until
        for entry in settings.acknowledged
    )


def _unused_acknowledgements(
    settings: Settings, found: list[Finding], of_settings: frozenset[str], with_plan: bool
) -> Iterator[Finding]:
    """Yield acknowledgements without a finding. `of_settings` are the names of findings that need no plan."""
    known = of_settings | policy.NAMES
    for index, entry in enumerate(settings.acknowledged):
        if not with_plan and entry.finding in policy.NAMES - of_settings:
            continue
        if any(entry.finding == finding.name and entry.path in (None, dotted(finding.path)) for finding in found):
            continue
        where: Path = ("acknowledged", index, "finding")
        at = f" at {entry.path}" if entry.path else ""
        hint = "remove it" if entry.finding in known else nearest(entry.finding, known)
        yield Finding(
            "unused-acknowledgement", "note", where, f"there is no finding '{entry.finding}'{at} to acknowledge; {hint}"
        )


# -- the rules --------------------------------------------------------------------------------------------------------


def missing_secrets(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for key, setting in settings.secret_keys().items():
        if key not in file.secrets:
            yield Finding("missing-secret", "error", tuple(setting.split(".")), missing_secret(key))


def mutable_images(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for name, profile in settings.profiles.items():
        images: dict[Path, str] = {("profiles", name, "image"): profile.image}
        if isinstance(profile.docker, DockerSidecar):
            images["profiles", name, "docker", "image"] = profile.docker.image
        for path, image in images.items():
            if moves(image):
                yield Finding(
                    "mutable-image",
                    "warning",
                    path,
                    f"{image} can change at any time: two runs of a job may differ, and a scale set whose runner GitHub"
                    " no longer accepts does not recover when the image is rebuilt; use a version or a digest",
                )


def fixed_render_groups(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for name, profile in settings.profiles.items():
        if profile.render_group is not None:
            yield Finding(
                "fixed-render-group",
                "warning",
                ("profiles", name, "renderGroup"),
                f"group {profile.render_group} must own the GPU devices on every host, or jobs there see no GPU; check"
                " with: stat -c %g /dev/dri/renderD128",
            )


def shared_docker(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for label, runner in settings.runners.items():
        devices = settings.devices_of_a_node(runner)
        if settings.has_docker_daemon(runner) and runner.gpus < devices:
            seen = (
                f"all {devices} GPUs of the node, not only the {runner.gpus} of its runner: a job that passes"
                " --device=/dev/dri uses GPUs of other jobs; request whole nodes, or pass only the devices that"
                " /etc/podinfo/gha-render-devices lists"
            )
            if settings.gpu_resource(settings.pool_name(runner)).startswith("nvidia.com/"):
                # A node may have more shares than GPUs, and shares are not devices.
                seen = (
                    "every GPU of the node, not only those of its pod: a job that passes --device=/dev/nvidia0 uses"
                    " GPUs of other jobs; request whole nodes, or disable docker for labels with GPUs"
                )
            message = f"the Docker daemon is privileged and sees {seen}"
            yield Finding("shared-docker", "warning", ("runners", label, "docker"), message)


def unlimited_docker(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for label, runner in settings.runners.items():
        if settings.has_docker_daemon(runner):
            yield Finding(
                "unlimited-docker",
                "note",
                ("runners", label, "memory"),
                f"jobs' containers run under the Docker daemon, which has no limits: {runner.memory} is reserved on the"
                " node, but not enforced as a limit",
            )


def minimum_exceeds_pool(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for name in settings.cluster.node_pools:
        idle = [runner for runner in settings.runners.values() if settings.pool_name(runner) == name]
        requested = sum(runner.min * runner.gpus for runner in idle)
        devices = settings.devices_of_pool(name)
        if devices is not None and requested > devices:
            yield Finding(
                "minimum-exceeds-pool",
                "error",
                ("cluster", "nodePools", name),
                f"idle runners request {requested} GPUs, but the pool has {devices}: some runners stay pending"
                " indefinitely; lower 'min' of its runners, or add nodes",
            )


def overcommitted_pools(settings: Settings, file: StackFile) -> Iterator[Finding]:
    from gpufleet_tools.capacity import stack_capacity as capacity

    for name, excess in capacity.excesses(settings).items():
        yield Finding("overcommitted", "error", ("cluster", "nodePools", name), excess)


def deprecations_without_successor(settings: Settings, file: StackFile) -> Iterator[Finding]:
    advised = {label: runner.deprecated.use for label, runner in settings.runners.items() if runner.deprecated}
    if not any(advised.values()):
        return
    served = _urls_of_labels(settings, file)
    for label, use in advised.items():
        where: Path = ("runners", label, "deprecated", "use")
        if use is None:
            continue
        own = settings.projects[settings.runners[label].project].config_url
        if use == label or use not in served:
            message = f"no stack serves the label '{use}': jobs for it queue for 24 hours and then fail;"
            yield Finding("deprecated-to-nowhere", "error", where, f"{message} {nearest(use, served.keys() - {label})}")
        elif served[use] and not any(serves(url, own) for url in served[use]):
            message = (
                f"the label '{use}' serves jobs of {listed(sorted(served[use]), 'and')}, not of {own}: those queue for"
                " 24 hours and then fail; name a label that serves them"
            )
            yield Finding("deprecated-to-nowhere", "error", where, message)


def open_upgrades(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield an upgrade of ARC that is not finished."""
    installed, version = settings.arc.upgrade_from, settings.arc.version
    if installed is not None:
        message = (
            f"ARC is being upgraded from {installed} to {version}; after pulumi up, run gpufleet upgrade arc"
            f" {file.stack} --finish"
        )
        yield Finding("arc-upgrade-open", "note", ("arc", "upgradeFrom"), message)


def eventual_updates(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield an update strategy that loses listeners."""
    labels = [label for label, runner in settings.runners.items() if runner.min]
    if settings.arc.update_strategy == "eventual" and labels:
        message = (
            f"after a change of max only, ARC may delete the listener of {listed(labels, 'and')} and never recreate it,"
            " because min is not 0 (actions/actions-runner-controller#4432); use immediate"
        )
        yield Finding("eventual-updates", "warning", ("arc", "updateStrategy"), message)


def _urls_of_labels(settings: Settings, file: StackFile) -> Mapping[str, set[str]]:
    """Return the labels of every stack of the project, with the GitHub URLs whose jobs they serve; no URL if it cannot
    be read. Stack files that cannot be read are skipped."""
    found: dict[str, set[str]] = {}
    for label, runner in settings.runners.items():
        found.setdefault(label, set()).add(settings.projects[runner.project].config_url)
    for path in stack_files(file.path.parent):
        if path == file.path:
            continue
        with contextlib.suppress(InvalidSettings):
            values = read(path).values
            runners = values.get("runners")
            for label, entry in runners.items() if isinstance(runners, dict) else ():
                urls = found.setdefault(str(label), set())
                with contextlib.suppress(KeyError, TypeError):
                    urls.add(str(values["projects"][entry["project"]]["configUrl"]))
    return found


def expired_deprecations(settings: Settings, today: datetime.date) -> Iterator[Finding]:
    """Yield labels that are served although their announced last day is over."""
    for label, runner in settings.runners.items():
        if runner.deprecated and runner.deprecated.until < today:
            yield Finding(
                "expired-deprecation",
                "warning",
                ("runners", label, "deprecated", "until"),
                f"the label was announced to be served until {runner.deprecated.until}; remove it, or announce a later"
                " date",
            )


RULES: Mapping[str, Callable[[Settings, StackFile], Iterator[Finding]]] = {
    "missing-secret": missing_secrets,
    "mutable-image": mutable_images,
    "fixed-render-group": fixed_render_groups,
    "shared-docker": shared_docker,
    "unlimited-docker": unlimited_docker,
    "minimum-exceeds-pool": minimum_exceeds_pool,
    "overcommitted": overcommitted_pools,
    "deprecated-to-nowhere": deprecations_without_successor,
    "arc-upgrade-open": open_upgrades,
    "eventual-updates": eventual_updates,
    **pod_findings.RULES,
}
"""Rules, by the name of their findings."""

NAMES = frozenset(RULES) | {"expired-deprecation"}
"""Names of findings about every kind of cluster."""

_OF_EVERY_KIND = NAMES | compatibility_findings.NAMES | runner_findings.NAMES | shared_labels.NAMES
"""Names of all findings that need no plan, except those of one kind of cluster."""
