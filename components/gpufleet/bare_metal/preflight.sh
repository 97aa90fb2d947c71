# Prints facts of a host, one `name=value` per line, before a cluster or a runner is installed on it. Changes nothing.
#
# It needs no privileges, and only tools that every Debian, Ubuntu and Red Hat has: no lspci, no Python.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

fact() { printf '%s=%s\n' "$1" "$2"; }

# Value of /etc/os-release, which has shell syntax.
release() { (. /etc/os-release 2>/dev/null && eval "printf %s \"\${$1:-}\""); }

# Number of GPUs of a PCI vendor: display controllers (class 03) and processing accelerators (12, such as MI300). A GPU's
# sound and USB functions, and switches between GPUs, have other classes.
gpus() {
  count=0
  for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = "$1" ] || continue
    case $(cat "$device/class" 2>/dev/null) in
      0x03* | 0x12*) count=$((count + 1)) ;;
    esac
  done
  echo "$count"
}

loaded() { if [ -d "/sys/module/$1" ]; then echo yes; else echo no; fi; }

# First version among words; engines also print names, URLs and commits.
version() { tr ' ' '\n' | sed -n 's/^v\{0,1\}\([0-9][0-9]*\.[0-9][0-9.]*\).*/\1/p' | head -n 1; }

rendering() {
  for node in /dev/dri/renderD*; do
    if [ -c "$node" ]; then stat -c %g "$node" && return; fi
  done
}

memory() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }

main() {
  fact clock "$(date +%s.%N)"
  if [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then fact root yes; else fact root no; fi
  fact hostname "$(uname -n)"
  fact os "$(release ID)"
  fact os_version "$(release VERSION_ID)"
  fact kernel "$(uname -r)"
  fact architecture "$(uname -m)"
  fact cgroup "$(stat -fc %T /sys/fs/cgroup 2>/dev/null)"
  fact memory_kib "$(memory MemTotal)"
  fact swap_kib "$(memory SwapTotal)"
  fact disk_free_kib "$(df -Pk /var/lib | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
  fact addresses "$(ip -o address show 2>/dev/null | sed -n 's/.* inet6\{0,1\} \([^ /]*\).*/\1/p' | tr '\n' ' ')"
  fact nameserver "$(sed -n 's/^nameserver[[:space:]]*//p' /etc/resolv.conf 2>/dev/null | head -n 1)"
  fact gpus_amd "$(gpus 0x1002)"
  fact gpus_nvidia "$(gpus 0x10de)"
  fact module_amdgpu "$(loaded amdgpu)"
  fact module_nvidia "$(loaded nvidia)"
  fact driver_nvidia "$(cat /sys/module/nvidia/version 2>/dev/null | version)"
  fact containerd "$(containerd --version 2>/dev/null | version)"
  fact docker "$(docker --version 2>/dev/null | version)"
  fact render_gid "$(rendering)"
  fact complete yes
}

main </dev/null
