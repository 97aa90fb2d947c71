# Validates AMD GPUs: see gpufleet/gpu_validation.sh. The checks read what amdgpu writes to sysfs, as rocm-smi and amd-smi
# do (src/rocm_smi_device.cc of ROCm/rocm_smi_lib), so they need no image with ROCm. The test requires RVS.
drivers=$SYSFS/module/amdgpu/drivers/pci:amdgpu
kfd=$SYSFS/class/kfd/kfd

check() {
  if [ ! -d "$drivers" ]; then
    echo "driver: the module amdgpu is not loaded; install the driver, or run: modprobe amdgpu"
    return
  fi
  count=0
  for gpu in "$drivers"/*:*:*.*; do
    [ -d "$gpu" ] || continue
    count=$((count + 1))
    address=${gpu##*/}
    uncorrectable
    partition compute "${COMPUTE:-}"
    partition memory "${MEMORY:-}"
    opened "$gpu"/drm/renderD*
  done
  [ "$count" -eq "$GPUS" ] ||
    echo "gpus: the driver runs $count GPUs, declared are $GPUS$(without_driver); search for amdgpu in the output of dmesg"
  [ -e "$DEV/kfd" ] || echo "kfd: no /dev/kfd, so ROCm finds no GPU; search for kfd in the output of dmesg"
  devices=$(cat "$kfd"/topology/nodes/*/properties 2>/dev/null | grep -c '^simd_count [1-9]')
  [ "$count" -ne "$GPUS" ] || [ "$devices" -eq "$DEVICES" ] ||
    echo "devices: ROCm offers $devices devices, expected are $DEVICES; restart the machine after a change of partitions"
}

# GPUs on the PCI bus that no driver runs: display controllers (class 03) and processing accelerators (12).
without_driver() {
  for device in "$SYSFS"/bus/pci/devices/*; do
    case $(cat "$device/vendor" "$device/class" 2>/dev/null | tr '\n' ' ') in
      "0x1002 0x03"* | "0x1002 0x12"*) [ -e "$device/driver" ] || printf ', without driver: %s' "${device##*/}" ;;
    esac
  done
}

# Blocks of a GPU with uncorrectable errors: files such as umc_err_count with the lines `ue: 0` and `ce: 0`
# (amdgpu_ras_sysfs_read in drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c of Linux).
uncorrectable() {
  for file in "$gpu"/ras/*_err_count; do
    errors=$(sed -n 's/^ue: *\([1-9][0-9]*\)$/\1/p' "$file" 2>/dev/null)
    block=${file##*/}
    [ -z "$errors" ] ||
      echo "ras: GPU $address has $errors uncorrectable errors in ${block%_err_count}; reboot, and replace it if they return"
  done
}

partition() { # KIND DECLARED
  found=$(cat "$gpu/current_$1_partition" 2>/dev/null)
  [ -z "$2" ] || [ -z "$found" ] || [ "$found" = "$2" ] ||
    echo "partition: GPU $address has $1 partition $found, declared is $2; run: amd-smi set --gpu all --$1-partition $2"
}

# The driver refuses to open the node of a GPU that it has lost.
opened() { # NODE
  node=$DEV/dri/${1##*/}
  (: <"$node") 2>/dev/null || echo "open: GPU $address cannot be opened as /dev/dri/${1##*/}; search for amdgpu in the output of dmesg"
}

# One folder for each process that uses ROCm (kfd_procfs_add_sysfs_stats in drivers/gpu/drm/amd/amdkfd of Linux).
busy() { [ -n "$(ls "$kfd/proc" 2>/dev/null)" ]; }

# The suite ends with 0 even if tests fail; its summary has the results (rvs/src/rvsexec_do_yaml.cpp at v1.7.0).
run_test() {
  case $LEVEL in
    medium) level=3 ;;
    long) level=4 ;;
  esac
  PATH=$PATH:/opt/rocm/bin
  if ! command -v rvs >/dev/null; then
    echo "rvs: the image has no ROCm Validation Suite; use an image that has it, such as docker.io/rocm/test-runner"
    return
  fi
  output=$(mktemp)
  rvs -r "$level" >"$output" 2>&1
  ended=$?
  cat "$output" >&2
  [ "$ended" -eq 0 ] || echo "rvs: ended with $ended: $(errors | head -n 1)"
  # Rows are `| NAME | MODULE | RESULT |`, with colours.
  failed=$(sed -n 's/^| \([^ ]*\) *| \([A-Z]*\) *| .*FAIL.*/\1 (\2)/p' "$output")
  [ -z "$failed" ] || echo "$failed" | sed 's/$/ failed/; s/^/rvs: /'
  sed -n 's/.*\] \[\([^]]*\)\] \[GPU:: *\([0-9]*\)\] .*\(met\|pass\): *\(FALSE\|false\).*/rvs: \1 failed on GPU \2/p' "$output" | sort -u
  [ "$ended" -ne 0 ] || grep -q '^| .*\(PASS\|FAIL\)' "$output" || echo "rvs: reports no result: $(errors | head -n 1)"
}

errors() { sed -n 's/^\[ERROR *\] *\(\[[^]]*\] *\)*//p' "$output"; }

case $1 in
  check) check ;;
  busy) busy ;;
  test) run_test ;;
esac
