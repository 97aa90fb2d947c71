"""Findings about resources of the program that violate the policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from gpufleet.problem import Path
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.plan.plan import Plan, Resource
from gpufleet_tools.policy import rules as policy

SECTIONS: Mapping[str, Path] = {
    "RunnerScaleSet": ("runners",),
    "RunnerProject": ("projects",),
    "KarpenterNodePool": ("cluster", "nodePools"),
}
"""Components by type, with the section of settings whose entries have their names."""

SINGLE: Mapping[str, Path] = {
    "ArcController": ("arc",),
    "AmdGpuDevicePlugin": ("devicePlugin",),
    "NvidiaDevicePlugin": ("nvidiaPlugin",),
}
"""Components by type, with the section of settings that describes the only one."""


def findings(plan: Plan, of_settings: Iterable[Finding], host_paths: Collection[str] = ()) -> Iterator[Finding]:
    """Yield findings about the program. Findings about settings that report the same violation are not repeated."""
    reported = [finding for finding in of_settings if finding.name in policy.NAMES]
    rules = policy.rules(host_paths)
    by_urn = {resource.urn: resource for resource in plan.resources}
    for resource in plan.owned():
        for rule in rules:
            for message in rule.judge(resource.type, resource.name, resource.inputs):
                if not any(_is_same(finding, rule.name, message) for finding in reported):
                    kind = resource.type.rpartition(":")[2]
                    text = f"{kind} {resource.name}: {message}"
                    yield Finding(rule.name, rule.severity, _setting(resource, by_urn), text)


def _is_same(finding: Finding, rule: str, message: str) -> bool:
    """Return whether a finding is about the same image, path or network, which is the first word of both messages."""
    return finding.name == rule and finding.message.split()[0] == message.split()[0]


def _setting(resource: Resource, by_urn: Mapping[str, Resource]) -> Path:
    """Return the setting that a resource comes from: that of its outermost component."""
    while resource.parent is not None and resource.parent in by_urn:
        resource = by_urn[resource.parent]
    kind = resource.type.rpartition(":")[2]
    if kind in SECTIONS:
        return (*SECTIONS[kind], resource.name)
    return SINGLE.get(kind, ("cluster",))
