"""Makes a host of namespaces a machine that a stack file declares, whatever machine it is on."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from types import MappingProxyType

from tests.hosts.namespaces import Host

SOUND = r"""
printf 'ID=ubuntu\nVERSION_ID=24.04\n' > /etc/os-release
sed 's/^SwapTotal: .*/SwapTotal: 0 kB/; s/^MemTotal: .*/MemTotal: 2640000000 kB/' /proc/meminfo > /srv/meminfo
mount --bind /srv/meminfo /proc/meminfo
mkdir -p "/lib/modules/$(uname -r)"
printf 'kernel/net/%s.ko\n' bridge/br_netfilter netfilter/ipvs/ip_vs > "/lib/modules/$(uname -r)/modules.builtin"
cd /usr/local/bin
printf '#!/bin/sh\necho 192\n' > nproc
printf '#!/bin/sh\necho "/dev/vda 3700000000 1 3699999999 1%% /"\n' > df
cat > stat <<'END'
#!/bin/sh
if [ "$*" = '-fc %T /sys/fs/cgroup' ]; then echo cgroup2fs; else exec /usr/bin/stat "$@"; fi
END
cat > dd <<'END'
#!/bin/sh
echo '100+0 records in
100+0 records out
230000 bytes (230 kB, 225 KiB) copied, 0.0523 s, 4.4 MB/s' >&2
END
chmod 755 nproc df stat dd
"""
"""`df -P`, `nproc` and `dd` print as those of GNU coreutils do."""

MI300X = {
    "product_name": "AMD Instinct MI300X OAM",
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "iommu_group/type": "identity",
    "numa_node": "0",
}
"""Files of a GPU that amdgpu and the kernel's IOMMU write (Documentation/gpu/amdgpu/driver-misc.rst,
drivers/gpu/drm/amd/amdgpu/amdgpu_gfx.c and Documentation/ABI/testing/sysfs-kernel-iommu_groups of Linux)."""


def make_sound(host: Host) -> None:
    """Gives the host the system, the memory, the cores and the disk of a GPU machine."""
    host.run("sh", "-ec", SOUND)


def add_mi300x(host: Host, count: int = 8, changes: Mapping[str, str] = MappingProxyType({})) -> None:
    """Gives the host GPUs, some of whose files may differ, and the device nodes of its driver."""
    host.add_gpus(
        vendor="0x1002", pci_class="0x120000", count=count, module="amdgpu", render_gid=110, files={**MI300X, **changes}
    )
    host.run("mknod", "/dev/kfd", "c", "1", "3")


def write(host: Host, path: str, text: str) -> pathlib.Path:
    """Writes a file of the host; one in a folder of programs can be run."""
    file = host.path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if file.parent.name == "bin":
        file.chmod(0o755)
    return file
