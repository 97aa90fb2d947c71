"""What is possible, but unwise or unfinished: findings, which a stack file can acknowledge for a time."""

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
from gpufleet_stacks.settings.problems import InvalidSettings, StackFileProblem, dotted, nearest
from gpufleet_stacks.settings.stack_file import StackFile, read, stack_files
from gpufleet_tools.check import compatibility_findings, pod_findings, runner_findings
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.plan.plan import Plan
from gpufleet_tools.policy import rules as policy
from gpufleet_tools.policy.pods import moves


@dataclass(frozen=True)
class Report:
    """The findings of one stack."""

    open: tuple[tuple[Finding, StackFileProblem], ...]
    """Findings that nobody has acknowledged, each with its place in the file."""
    acknowledged: tuple[Finding, ...]
    """Findings that somebody has, for a time."""

    def lines(self) -> list[str]:
        """One line for each open finding."""
        return [
            str(StackFileProblem(at.file, at.line, at.path, f"{finding.severity}: {finding.message} [{finding.name}]"))
            for finding, at in self.open
        ]


def report(settings: Settings, file: StackFile, today: datetime.date, plan: Plan | None = None) -> Report:
    """The findings of a stack on a day: acknowledgements end. With its plan, also those about the program."""
    found = [finding for rule in RULES.values() for finding in rule(settings, file)]
    kind = _of_its_kind(settings)
    found += kind.findings(settings)
    found += compatibility_findings.findings(settings, file)
    found += runner_findings.findings(settings, file, today)
    if plan is not None:
        from gpufleet_tools.check import policy_findings

        found += list(policy_findings.findings(plan, tuple(found)))
    names_of_settings = NAMES | kind.NAMES | compatibility_findings.NAMES | runner_findings.NAMES
    found += _unused_acknowledgements(settings, found, names_of_settings, judged=plan is not None)
    acknowledged = tuple(finding for finding in found if _is_acknowledged(finding, settings, today))
    open_ = [finding for finding in found if finding not in acknowledged]
    placed = [(finding, file.problem(finding.path, finding.message)) for finding in open_]
    return Report(tuple(sorted(placed, key=lambda pair: (pair[1].line or 0, pair[0].name))), acknowledged)


def _of_its_kind(settings: Settings) -> ModuleType:
    """What has the findings about that kind of cluster, and their `NAMES`. Only those that may arise are imported."""
    return importlib.import_module(_KINDS[settings.cluster.kind])


_KINDS = {"bareMetal": "gpufleet_tools.check.bare_metal", "eks": "gpufleet_tools.check.eks"}
"""Module with the findings of a kind of cluster."""


def every_name() -> frozenset[str]:
    """Return the name of every finding, whatever the cluster."""
    of_kinds = (importlib.import_module(module).NAMES for module in _KINDS.values())
    return NAMES.union(*of_kinds, compatibility_findings.NAMES, runner_findings.NAMES, policy.NAMES)


def _is_acknowledged(finding: Finding, settings: Settings, today: datetime.date) -> bool:
    return any(
        entry.finding == finding.name and entry.path in (None, dotted(finding.path)) and today <= entry.until
        for entry in settings.acknowledged
    )


def _unused_acknowledgements(
    settings: Settings, found: list[Finding], of_settings: frozenset[str], judged: bool
) -> Iterator[Finding]:
    """Acknowledgements of nothing; `of_settings` are the names that no program has to be recorded for."""
    known = of_settings | policy.NAMES
    for index, entry in enumerate(settings.acknowledged):
        if not judged and entry.finding in policy.NAMES - of_settings:
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
    for key, asked in settings.secret_keys().items():
        if key not in file.secrets:
            yield Finding("missing-secret", "error", tuple(asked.split(".")), missing_secret(key))


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
                    f"{image} can change under a running fleet: two runs of a job may differ, and a scale set that"
                    " GitHub has retired for its old runner does not come back on a rebuilt image;"
                    " name a version or a digest",
                )


def fixed_render_groups(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for name, profile in settings.profiles.items():
        if profile.render_group is not None:
            yield Finding(
                "fixed-render-group",
                "warning",
                ("profiles", name, "renderGroup"),
                f"group {profile.render_group} owns the GPUs' devices on hosts installed one way only; where it is"
                " another, jobs see no GPU; check with: stat -c %g /dev/dri/renderD128",
            )


def shared_docker(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for label, runner in settings.runners.items():
        devices = settings.devices_of_a_node(runner)
        if settings.has_docker_daemon(runner) and runner.gpus < devices:
            seen = (
                f"all {devices} GPUs of the node, not only its {runner.gpus}: a job that passes --device=/dev/dri uses"
                " its neighbours'; ask for whole nodes, or have jobs pass only what /etc/podinfo/gha-render-devices"
                " lists"
            )
            if settings.gpu_resource(settings.pool_name(runner)).startswith("nvidia.com/"):
                # Of shares there are more than GPUs, and they are no devices of their own.
                seen = (
                    "every GPU of the node, not only what its pod is given: a job that passes --device=/dev/nvidia0"
                    " uses its neighbours'; ask for whole nodes, or have jobs on GPUs go without Docker"
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
                f"containers that jobs start run under the Docker daemon, which has no limits: {runner.memory} is set"
                " aside on the node, but does not bound them",
            )


def minimum_exceeds_pool(settings: Settings, file: StackFile) -> Iterator[Finding]:
    for name in settings.cluster.node_pools:
        idle = [runner for runner in settings.runners.values() if settings.pool_name(runner) == name]
        asked = sum(runner.min * runner.gpus for runner in idle)
        there = settings.devices_of_pool(name)
        if there is not None and asked > there:
            yield Finding(
                "minimum-exceeds-pool",
                "error",
                ("cluster", "nodePools", name),
                f"idle runners ask for {asked} GPUs and the pool has {there}: some stay pending for ever;"
                " lower 'min' of its runners, or add nodes",
            )


def overcommitted_pools(settings: Settings, file: StackFile) -> Iterator[Finding]:
    from gpufleet_tools.capacity import stack_capacity as capacity

    for name, excess in capacity.excesses(settings).items():
        yield Finding("overcommitted", "error", ("cluster", "nodePools", name), excess)


def deprecations_without_successor(settings: Settings, file: StackFile) -> Iterator[Finding]:
    advised = {label: runner.deprecated.use for label, runner in settings.runners.items() if runner.deprecated}
    if not any(advised.values()):
        return
    served = _labels_of_the_project(settings, file)
    for label, use in advised.items():
        if use is not None and (use == label or use not in served):
            yield Finding(
                "deprecated-to-nowhere",
                "error",
                ("runners", label, "deprecated", "use"),
                f"no stack serves the label '{use}': whoever follows the advice queues for a day;"
                f" {nearest(use, served - {label})}",
            )


def _labels_of_the_project(settings: Settings, file: StackFile) -> set[str]:
    """Labels of every stack of the project, as far as the others can be read."""
    labels = set(settings.runners)
    for path in stack_files(file.path.parent):
        with contextlib.suppress(InvalidSettings):
            runners = read(path).values.get("runners")
            labels |= set(runners) if isinstance(runners, dict) else set()
    return labels


RULES: Mapping[str, Callable[[Settings, StackFile], Iterator[Finding]]] = {
    "missing-secret": missing_secrets,
    "mutable-image": mutable_images,
    "fixed-render-group": fixed_render_groups,
    "shared-docker": shared_docker,
    "unlimited-docker": unlimited_docker,
    "minimum-exceeds-pool": minimum_exceeds_pool,
    "overcommitted": overcommitted_pools,
    "deprecated-to-nowhere": deprecations_without_successor,
    **pod_findings.RULES,
}
"""Rules, by the name of their findings."""

NAMES = frozenset(RULES)
"""Names that an acknowledgement can give, whatever the cluster."""
