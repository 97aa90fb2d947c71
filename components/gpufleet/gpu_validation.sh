# Validates the GPUs of a node, as an init container of their device plugin: until it succeeds, the kubelet has no GPUs to
# allocate. Prints one line for each fault, also as the container's termination message, and ends with 1 if there are any.
#
# $1 is the vendor's script. Its first argument selects a part:
#   check  prints a line for each fault; does not disturb running jobs
#   busy   succeeds if a program uses the GPUs
#   test   occupies the GPUs with the test of $LEVEL; prints a line for each fault
#
# $STATE is a folder of the host that is gone after a reboot. It keeps
#   gpu-validation  the last result
#   gpu-test        the level that was tested since the boot, and the faults of that test
export LC_ALL=C
trap 'exit 143' TERM
vendor=$1
work=$(mktemp -d)
faults=$work/faults

# Ends with the faults, or with success if there are none.
finish() { # LEVEL
  result=passed
  [ ! -s "$faults" ] || result=failed
  {
    printf 'result=%s\nat=%s\nlevel=%s\ngpus=%s\n' "$result" "$(date +%s)" "$1" "${GPUS:-}"
    sed 's/^/fault=/' "$faults"
  } >"$STATE/gpu-validation.new"
  mv "$STATE/gpu-validation.new" "$STATE/gpu-validation"
  [ "$result" = failed ] || echo "$GPUS GPUs passed the validation, level $1" >"$faults"
  tee "$TERMINATION_MESSAGE" <"$faults"
  rm -rf "$work"
  [ "$result" = passed ]
  exit
}

# Runs a part of the vendor's script. A part that hangs in the kernel cannot be killed, so nothing waits for it; it ends
# with the container.
run() { # PART
  rm -f "$work/ended"
  (
    sh -c "$vendor" validation "$1" >"$faults"
    echo $? >"$work/ended"
  ) &
  # Fifths of a second: the clock may jump after a boot.
  waited=0
  until [ -s "$work/ended" ]; do
    if [ "$waited" -ge $((5 * TIMEOUT_SECONDS)) ]; then
      echo "timeout: the $1 did not end within $TIMEOUT_SECONDS s; search for GPU errors in the output of dmesg" >"$faults"
      return 0
    fi
    sleep 0.2
    waited=$((waited + 1))
  done
  return "$(cat "$work/ended")"
}

required() { # PART
  run "$1" || echo "$1: ended with $? before its end; see the log of this container" >>"$faults"
}

# Tests the GPUs once after each boot, before any job: a restarted plugin or a raised level must not disturb jobs, and a
# test that passes after failures proves nothing.
tested() {
  [ ! -e "$STATE/gpu-test" ] || return 0
  : >"$faults"
  level=quick
  if [ "$LEVEL" != quick ] && ! run busy; then
    level=$LEVEL
    echo "test of level $level" >&2
    required test
  fi
  { echo "$level" && cat "$faults"; } >"$STATE/gpu-test.new"
  mv "$STATE/gpu-test.new" "$STATE/gpu-test"
}

if ! declared=$(cat "$DECLARED/$NODE_NAME" 2>/dev/null || cat "$DECLARED/_others" 2>/dev/null); then
  echo "declaration: the stack file has no machine $NODE_NAME; declare it, or wait until pulumi up has ended" >"$faults"
  finish quick
fi
# Words such as GPUS=8, which the component has written.
# shellcheck disable=SC2086,SC2163
export $declared

required check
[ ! -s "$faults" ] || finish quick
tested
sed 1d "$STATE/gpu-test" >"$faults"
[ ! -s "$faults" ] ||
  echo "test: not repeated before the next boot; after a repair, run on the machine: rm /run/gpufleet/gpu-test" >>"$faults"
finish "$(sed -n 1p "$STATE/gpu-test")"
