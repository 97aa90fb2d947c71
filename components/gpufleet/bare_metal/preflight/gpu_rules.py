"""Requirements on GPUs that a machine fails: one line each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet.bare_metal.preflight.needs import GpuNeeds, HostNeeds

PASSTHROUGH = "identity"
"""Type of an IOMMU group whose devices use physical addresses (Documentation/ABI/testing/sysfs-kernel-iommu_groups of
Linux)."""


def gpus(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield what is wrong with the GPUs: their number and model, driver, device nodes, partitions, and the way they
    reach each other. Without GPUs or a driver, only that."""
    if needs.gpu is None:
        return
    wanted = needs.gpu
    present, module, vendor = {
        "amd": (facts.gpus_amd, facts.module_amdgpu, "AMD"),
        "nvidia": (facts.gpus_nvidia, facts.module_nvidia, "NVIDIA"),
    }[wanted.vendor]
    if present == 0 or (wanted.count is not None and present != wanted.count):
        expected = "at least one" if wanted.count is None else wanted.count
        yield f"gpus: {present} {vendor} GPUs on the PCI bus, expected {expected}; reseat them, or correct the number"
    yield from _models(facts, wanted)
    if present and not module:
        driver = "amdgpu" if wanted.vendor == "amd" else "nvidia"
        yield f"driver: the module {driver} is not loaded; install the driver, or run: modprobe {driver}"
    if present and module and wanted.vendor == "amd":
        yield from _device_nodes(facts, wanted)
        yield from _partitions(facts, wanted)
    if present > 1:
        yield from _paths(facts)
    if wanted.validated and facts.gpu_validation:
        for fault in facts.gpu_validation.faults:
            yield f"validation: {fault}"


def _models(facts: HostFacts, wanted: GpuNeeds) -> Iterator[str]:
    """Yield a failure for GPUs whose product name lacks a word of the declared model: an A10G is no A10."""
    words = {*_words(wanted.model or "")}
    others = sorted(name for name in facts.gpu_models if not words <= {*_words(name)})
    if others:
        yield (
            f"gpus: {', '.join(others)}, declared is {wanted.model}; correct accelerator.model, or move the machine to"
            " the pool of its model"
        )


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _device_nodes(facts: HostFacts, wanted: GpuNeeds) -> Iterator[str]:
    if facts.render_gid is None:
        yield "render: no /dev/dri/renderD*, although the driver is loaded; search for amdgpu in the output of dmesg"
    elif wanted.render_gids - {facts.render_gid}:
        declared = ", ".join(str(gid) for gid in sorted(wanted.render_gids - {facts.render_gid}))
        yield (
            f"render: the group of render nodes is {facts.render_gid}, profiles declare renderGroup {declared}; correct"
            " them, or change the group's ID on the machine"
        )
    if not facts.kfd:
        yield "kfd: no /dev/kfd, so ROCm finds no GPU; search for kfd in the output of dmesg"


def _partitions(facts: HostFacts, wanted: GpuNeeds) -> Iterator[str]:
    kinds = (
        ("compute", facts.compute_partitions, wanted.compute_partition),
        ("memory", facts.memory_partitions, wanted.memory_partition),
    )
    for kind, found, declared in kinds:
        if declared and found and found != {declared}:
            yield (
                f"partition: {kind} partition is {', '.join(sorted(found))}, declared is {declared}; run: amd-smi set"
                f" --gpu all --{kind}-partition {declared}"
            )


def _paths(facts: HostFacts) -> Iterator[str]:
    """Yield what slows down transfers between GPUs (rocm.docs.amd.com, system optimization; docs.nvidia.com, NCCL
    troubleshooting)."""
    if facts.gpu_iommu - {PASSTHROUGH}:
        yield "iommu: translates the addresses of GPUs, which slows down transfers between them; boot with iommu=pt"
    if facts.acs_redirecting:
        yield (
            f"acs: {facts.acs_redirecting} PCI devices redirect transfers between GPUs to the CPU; disable ACS in the"
            " firmware"
        )
    if facts.gpus_without_numa_node and facts.numa_nodes > 1:
        yield (
            f"numa: {facts.gpus_without_numa_node} GPUs have no NUMA node, so pods cannot be placed near them; enable"
            " it in the firmware (SRAT, ACPI _PXM)"
        )
    if facts.numa_balancing and facts.numa_nodes > 1 and facts.gpus_amd:
        yield (
            "numa: the kernel moves memory between NUMA nodes, which stalls GPUs; set kernel.numa_balancing=0 in"
            " /etc/sysctl.d"
        )
