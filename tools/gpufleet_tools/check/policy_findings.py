"""What a recorded program does against the rules of policy.py, as findings of its stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpufleet.problem import Path
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.plan.plan import Plan, Resource
from gpufleet_tools.policy import rules as policy

SECTIONS: Mapping[str, Path] = {
    "RunnerScaleSet": ("runners",),
    "RunnerProject": ("projects",),
    "KarpenterNodePool": ("cluster", "nodePools"),
}
"""Sections of settings whose entries are components of the same name."""

WHOLE: Mapping[str, Path] = {
    "ArcController": ("arc",),
    "AmdGpuDevicePlugin": ("devicePlugin",),
    "NvidiaDevicePlugin": ("nvidiaPlugin",),
}
"""Sections of settings that are one component."""


def findings(plan: Plan, said: Iterable[Finding]) -> Iterator[Finding]:
    """Findings about the program; not those that the settings have been told of already, at their own line."""
    there = [finding for finding in said if finding.name in policy.NAMES]
    by_urn = {resource.urn: resource for resource in plan.resources}
    for resource in plan.owned():
        for rule in policy.RULES:
            for message in rule.judge(resource.type, resource.name, resource.inputs):
                if not any(_says(finding, rule.name, message) for finding in there):
                    kind = resource.type.rpartition(":")[2]
                    text = f"{kind} {resource.name}: {message}"
                    yield Finding(rule.name, rule.severity, _setting(resource, by_urn), text)


def _says(finding: Finding, rule: str, message: str) -> bool:
    """Whether a finding about settings is of the same image or network: messages about either begin with it."""
    return finding.name == rule and finding.message.split()[0] == message.split()[0]


def _setting(resource: Resource, by_urn: Mapping[str, Resource]) -> Path:
    """The setting that a resource arises from: that of the component that it is part of."""
    while resource.parent is not None and resource.parent in by_urn:
        resource = by_urn[resource.parent]
    kind = resource.type.rpartition(":")[2]
    if kind in SECTIONS:
        return (*SECTIONS[kind], resource.name)
    return WHOLE.get(kind, ("cluster",))
