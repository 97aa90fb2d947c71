# Validates NVIDIA GPUs: see gpufleet/gpu_validation.sh. nvidia-smi comes from the machine's driver, which the container
# runtime adds to the container. The test requires DCGM, and runs the suites of dcgmi that have the names of the levels.

# A row for each GPU with these fields, separated by `, `.
query() { # FIELDS
  nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits
}

check() {
  if ! command -v nvidia-smi >/dev/null; then
    echo "driver: there is no nvidia-smi; install the driver, and make nvidia the default runtime of the container engine"
    return
  fi
  rows=$(query pci.bus_id,ecc.errors.uncorrected.volatile.total 2>&1)
  ended=$?
  # nvidia-smi names a lost GPU, and ends with an error.
  [ "$ended" -eq 0 ] || echo "nvidia-smi: ended with $ended: $(echo "$rows" | grep -v ', ' | head -n 1)"
  count=$(echo "$rows" | grep -c '^[0-9A-Fa-f]\{4,8\}:')
  [ "$count" -eq "$GPUS" ] ||
    echo "gpus: the driver runs $count GPUs, declared are $GPUS; search for NVRM in the output of dmesg"
  # `[N/A]` without ECC.
  echo "$rows" | sed -n 's/^\([0-9A-Fa-f:.]*\), \([1-9][0-9]*\)$/ras: GPU \1 has \2 uncorrectable ECC errors; reboot, and replace it if they return/p'
}

busy() { [ -n "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null)" ]; }

# dcgmi ends with an error if a test fails (dcgmi/Diag.cpp of NVIDIA/DCGM at v4.6.0).
run_test() {
  if ! command -v dcgmi >/dev/null; then
    echo "dcgm: the image has no dcgmi; use an image that has it, such as nvcr.io/nvidia/cloud-native/dcgm"
    return
  fi
  nv-hostengine >&2
  output=$(mktemp)
  dcgmi diag --run "$LEVEL" >"$output" 2>&1
  ended=$?
  cat "$output" >&2
  # Rows are `| TEST | RESULT |`; below the row of a test are those of its GPUs, `| | GPU0: Fail |`.
  sed -n 's/^| *\([a-z_]*\) *| *\([A-Za-z0-9: ]*Fail\) *|$/\1|\2/p' "$output" | while IFS='|' read -r name result; do
    [ -z "$name" ] || test=$name
    case $result in
      GPU*) echo "dcgm: $test failed on ${result%: Fail}" ;;
      *) echo "dcgm: $test failed" ;;
    esac
  done
  [ "$ended" -eq 0 ] || echo "dcgm: dcgmi ended with $ended: $(grep -i 'error' "$output" | head -n 1)"
  grep -q '^| .*Pass' "$output" || [ "$ended" -ne 0 ] || echo "dcgm: reports no result"
}

case $1 in
  check) check ;;
  busy) busy ;;
  test) run_test ;;
esac
