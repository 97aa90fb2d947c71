# Prints facts of a host, one `name=value` per line, before a cluster or a runner is installed on it. Changes nothing.
#
# It needs no privileges, and only tools that every supported distribution has: no lspci, no Python. A fact that only root
# can read is empty without passwordless sudo.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

fact() { printf '%s=%s\n' "$1" "$2"; }

is_root() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi 2>/dev/null; }

# Value of /etc/os-release, which has shell syntax.
release() { (. /etc/os-release 2>/dev/null && eval "printf %s \"\${$1:-}\""); }

# Folders of a PCI vendor's GPUs: display controllers (class 03) and processing accelerators (12, such as MI300). A GPU's
# sound and USB functions, and switches between GPUs, have other classes.
devices() {
  for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = "$1" ] || continue
    case $(cat "$device/class" 2>/dev/null) in
      0x03* | 0x12*) echo "$device" ;;
    esac
  done
}

# Distinct lines, separated by semicolons.
distinct() { sort -u | sed '/^$/d' | tr '\n' ';'; }

# Distinct contents of a file of each GPU.
of_gpus() { for device in $gpus; do cat "$device/$1" 2>/dev/null; done | distinct; }

loaded() { if [ -d "/sys/module/$1" ]; then echo yes; else echo no; fi; }

# Kernel modules that are loaded, built in or installed, among the arguments.
available() {
  for module in "$@"; do
    if [ -d "/sys/module/$module" ] ||
      grep -qs "/$module\.ko" "$modules/modules.dep" "$modules/modules.builtin"; then echo "$module"; fi
  done | tr '\n' ' '
}

# First version among words; engines also print names, URLs and commits.
version() { tr ' ' '\n' | sed -n 's/^v\{0,1\}\([0-9][0-9]*\.[0-9][0-9.]*\).*/\1/p' | head -n 1; }

rendering() {
  for node in /dev/dri/renderD*; do
    if [ -c "$node" ]; then stat -c %g "$node" && return; fi
  done
}

memory() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }

disk() { df -Pk /var/lib | tail -n 1 | tr -s ' ' | cut -d ' ' -f "$1"; }

# Product names: amdgpu has them in sysfs for server cards, the NVIDIA driver in /proc.
models() {
  {
    for device in $gpus; do cat "$device/product_name" 2>/dev/null; done
    cat /proc/driver/nvidia/gpus/*/information 2>/dev/null | sed -n 's/^Model:[[:space:]]*//p'
  } | distinct
}

without_numa_node() { for device in $gpus; do cat "$device/numa_node" 2>/dev/null; done | grep -c '^-1$'; }

# Ends of certificates of the control plane, etcd and the kubelet: `Nov 22 17:38:01 2026 GMT=PATH`.
certificates() {
  as_root find /etc/kubernetes/ssl /etc/kubernetes/pki /etc/ssl/etcd/ssl /var/lib/kubelet/pki -maxdepth 2 \
    '(' -name '*.crt' -o -name '*.pem' ')' ! -name '*-key.pem' |
    while read -r file; do
      as_root openssl x509 -noout -enddate -in "$file" | sed -n "s|^notAfter=\(.*\)|\1=$file|p"
    done | distinct
}

# Number of PCI devices that redirect traffic between their peers (Access Control Services); empty if unknown.
redirecting() {
  if is_root && command -v lspci >/dev/null; then as_root timeout 5 lspci -vvv | grep -c 'ACSCtl:.*SrcValid+'; fi
}

main() {
  fact clock "$(date +%s.%N)"
  if is_root; then fact root yes; else fact root no; fi
  fact hostname "$(uname -n)"
  fact machine_id "$(cat /etc/machine-id 2>/dev/null)"
  fact product_uuid "$(as_root cat /sys/class/dmi/id/product_uuid)"
  fact os "$(release ID)"
  fact os_version "$(release VERSION_ID)"
  fact kernel "$(uname -r)"
  modules=/lib/modules/$(uname -r)
  if [ -d "$modules" ]; then fact modules_installed yes; else fact modules_installed no; fi
  fact modules "$(available br_netfilter ip_vs overlay)"
  fact architecture "$(uname -m)"
  fact cgroup "$(stat -fc %T /sys/fs/cgroup 2>/dev/null)"
  fact cores "$(nproc)"
  fact memory_kib "$(memory MemTotal)"
  fact swap_kib "$(memory SwapTotal)"
  fact disk_kib "$(disk 2)"
  fact disk_free_kib "$(disk 4)"
  fact addresses "$(ip -o address show 2>/dev/null | sed -n 's/.* inet6\{0,1\} \([^ /]*\).*/\1/p' | tr '\n' ' ')"
  fact nameserver "$(sed -n 's/^nameserver[[:space:]]*//p' /etc/resolv.conf 2>/dev/null | head -n 1)"
  fact containerd "$(containerd --version 2>/dev/null | version)"
  fact docker "$(docker --version 2>/dev/null | version)"
  fact certificates "$(certificates)"
  fact snapshots "$([ ! -e /etc/systemd/system/gpufleet-etcd-snapshot.timer ] || echo yes)"
  fact last_snapshot "$(as_root cat /var/lib/gpufleet/etcd-snapshot.last)"
  gpu_facts
  fact complete yes
}

gpu_facts() {
  amd=$(devices 0x1002)
  nvidia=$(devices 0x10de)
  gpus="$amd $nvidia"
  fact gpus_amd "$(echo "$amd" | grep -c .)"
  fact gpus_nvidia "$(echo "$nvidia" | grep -c .)"
  fact gpu_models "$(models)"
  fact module_amdgpu "$(loaded amdgpu)"
  fact module_nvidia "$(loaded nvidia)"
  fact driver_amdgpu "$(cat /sys/module/amdgpu/version 2>/dev/null | version)"
  fact driver_nvidia "$(cat /sys/module/nvidia/version 2>/dev/null | version)"
  fact rocm "$(cat /opt/rocm/.info/version 2>/dev/null | version)"
  if [ -c /dev/kfd ]; then fact kfd yes; else fact kfd no; fi
  fact render_gid "$(rendering)"
  fact compute_partitions "$(of_gpus current_compute_partition)"
  fact memory_partitions "$(of_gpus current_memory_partition)"
  fact gpu_iommu "$(of_gpus iommu_group/type)"
  fact gpus_without_numa_node "$(without_numa_node)"
  fact numa_nodes "$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l)"
  fact numa_balancing "$(cat /proc/sys/kernel/numa_balancing 2>/dev/null)"
  fact acs_redirecting "$(redirecting)"
  fact gpu_validation "$(cat /run/gpufleet/gpu-validation 2>/dev/null | tr '\n' '|')"
}

main </dev/null
