# NVIDIA Container Toolkit at one version, held there. Values are set above this line.
#
#   install  brings the host to it, then verifies; does nothing where nothing is to be done
#   verify   one line for each deviation; changes nothing
#   remove   takes the hold, the pin and the repository away; packages and runtime stay
#
# All of it is in functions, and the last line calls one: of a script that arrives in part, nothing runs.
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

packages='nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1'
keyring=/usr/share/keyrings/nvidia-container-toolkit-keyring.asc
sources=/etc/apt/sources.list.d/nvidia-container-toolkit.list
preferences=/etc/apt/preferences.d/nvidia-container-toolkit
toolkit_config=/etc/nvidia-container-runtime/config.toml
# Written before the engine's configuration, removed after its restart: a run that is cut off between the two is
# finished by the next.
restart_pending=/var/lib/nvidia-container-toolkit.restart-pending

say() { printf '%s\n' "$*"; }

fail() {
  printf 'nvidia-container-toolkit: %s\n' "$*" >&2
  exit 1
}

# Runs a command; shows what it printed only where it fails.
quietly() {
  if ! "$@" >"$work/output" 2>&1; then
    tail -n 15 "$work/output" >&2
    fail "failed: $*"
  fi
}

# Puts standard input into a file; succeeds where that changed it.
write() {
  cat >"$work/new"
  if cmp -s "$work/new" "$1"; then return 1; fi
  mkdir -p "${1%/*}"
  cp "$work/new" "$1.new"
  chmod 644 "$1.new"
  mv "$1.new" "$1"
}

# State of a package as dpkg has it: version, and `ii`, or `hi` where it is held.
state() { dpkg-query -W -f='${Version} ${db:Status-Abbrev}' "$1" 2>/dev/null || :; }

installed() {
  case $(state "$1") in
    "$version ii"* | "$version hi"*) return 0 ;;
    *) return 1 ;;
  esac
}

engine_files() {
  case $engine in
    docker) echo /etc/docker/daemon.json ;;
    containerd) ls -d /etc/containerd/config.toml /etc/containerd/conf.d/*.toml 2>/dev/null || : ;;
  esac
}

engine_sum() { for file in $(engine_files); do if [ -e "$file" ]; then cksum "$file"; fi; done; }

requirements() {
  [ "$(id -u)" = 0 ] || fail "is run by $(id -un); it needs root, by sudo without a password"
  for program in apt-get apt-mark dpkg-query; do
    command -v "$program" >/dev/null || fail "this host has no $program; only Debian and Ubuntu are supported"
  done
}

# apt refuses to read anything where two files name one repository with different keyrings.
second_source() {
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    if [ "$file" != "$sources" ] && [ -f "$file" ] && grep -v '^ *#' "$file" | grep -qF "${repository%/}/"; then
      fail "$file names the same repository, and apt refuses two keyrings for one: remove that file"
    fi
  done
}

repository() {
  second_source
  changed=
  if ! [ -s "$keyring" ] || ! [ -s "$sources" ] || ! grep -qF "# key: $key_url $key_sha256" "$sources"; then
    mkdir -p "${keyring%/*}"
    # apt's own downloader: it is on every host that has apt, which curl and gpg are not.
    quietly /usr/lib/apt/apt-helper download-file "$key_url" "$work/key" ${key_sha256:+"SHA256:$key_sha256"}
    grep -q 'BEGIN PGP PUBLIC KEY BLOCK' "$work/key" || fail "$key_url is not a public key in ASCII armour"
    if write "$keyring" <"$work/key"; then changed=yes; fi
  fi
  if write "$sources"; then changed=yes; fi <<END
# key: $key_url $key_sha256
deb [signed-by=$keyring] ${repository%/}/\$(ARCH) /
END
  if [ -n "$changed" ]; then say 'changed: package repository'; fi
}

pin() {
  if write "$preferences"; then say 'changed: pin'; fi <<END
Package: $packages
Pin: version $version
Pin-Priority: 1001
END
}

install_packages() {
  for package in $packages; do
    if ! installed "$package"; then set -- "$@" "$package=$version"; fi
  done
  if [ "$#" -gt 0 ]; then
    if [ -n "$(dpkg --audit)" ]; then quietly dpkg --configure -a; fi
    # This repository's list only: a fault in another is no reason to fail here.
    quietly apt-get -q -o DPkg::Lock::Timeout=300 -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=- \
      -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any update
    set --
    for package in $packages; do set -- "$@" "$package=$version"; done
    quietly apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold install \
      --no-install-recommends --allow-downgrades --allow-change-held-packages "$@"
    say "changed: packages, now $version"
  fi
  held=$(apt-mark showhold)
  set --
  for package in $packages; do
    printf '%s\n' "$held" | grep -qx "$package" || set -- "$@" "$package"
  done
  if [ "$#" -gt 0 ]; then
    quietly apt-mark hold "$@"
    say "changed: hold of $*"
  fi
}

configure() {
  grep -qx "$volume_mounts = true" "$toolkit_config" 2>/dev/null || {
    quietly nvidia-ctk config --set "$volume_mounts=true" --in-place
    say "changed: $volume_mounts"
  }
  [ -n "$engine" ] || return 0
  before=$(engine_sum)
  already=$(ls "$restart_pending" 2>/dev/null || :)
  mkdir -p "${restart_pending%/*}"
  : >"$restart_pending"
  quietly nvidia-ctk runtime configure --runtime="$engine" --set-as-default $cdi_flag
  if [ "$before" = "$(engine_sum)" ] && [ -z "$already" ] && docker_follows; then
    rm "$restart_pending"
    return 0
  fi
  containers=$(containers_that_end)
  [ "$containers" = 0 ] || fail "docker: $containers containers run, and its restart would end them;" \
    'free the machine, stop them, and run pulumi up again'
  quietly systemctl restart "$engine"
  rm "$restart_pending"
  say "changed: default runtime of $engine, which has been restarted"
}

# Number of containers that end with a restart of the engine. Docker ends them unless live-restore is on; containerd's
# unit has KillMode=process, so its containers continue.
containers_that_end() {
  if [ "$engine" = docker ] && [ "$(docker info --format '{{.LiveRestoreEnabled}}' 2>/dev/null)" = false ]; then
    docker ps --quiet | wc -l
  else
    echo 0
  fi
}

# Default runtime of the Docker that runs, or what the client says instead.
docker_default() { docker info --format '{{.DefaultRuntime}}' 2>&1 | tr '\n' ' ' | sed 's/ *$//'; }

# Succeeds where no Docker runs with another default runtime than its configuration has.
docker_follows() {
  [ "$engine" != docker ] || ! command -v docker >/dev/null || [ "$(docker_default)" = nvidia ]
}

deviations() {
  # shellcheck disable=SC2086
  apt-cache policy $packages >"$work/policy"
  for package in $packages; do
    case $(state "$package") in
      '') say "$package: is not installed; $version is wanted" ;;
      "$version hi"*) ;;
      "$version ii"*) say "$package: is not held; the next upgrade may replace it" ;;
      *) say "$package: is $(state "$package"), not $version" ;;
    esac
    candidate=$(sed -n "/^$package:/,/^ *Candidate:/s/^ *Candidate: //p" "$work/policy")
    [ "$candidate" = "$version" ] || say "$package: apt would install ${candidate:-nothing}; the pin in $preferences does not hold"
  done
  library=$(nvidia-container-cli --version 2>&1) || library="$library (failed)"
  for part in cli lib; do
    printf '%s\n' "$library" | grep -qx "$part-version: ${version%-*}" ||
      say "nvidia-container-cli: $(printf '%s' "$library" | tr '\n' ' '): $part-version ${version%-*} is wanted"
  done
  grep -qx "$volume_mounts = true" "$toolkit_config" 2>/dev/null ||
    say "$toolkit_config: $volume_mounts is not true"
  if [ -n "$legacy" ] && grep -Eqx 'mode = "(cdi|jit-cdi|csv)"' "$toolkit_config" 2>/dev/null; then
    say "$toolkit_config: nvidia-container-runtime.mode is $(grep -x 'mode = .*' "$toolkit_config"); nvkind needs auto or legacy"
  fi
  case $engine in
    docker) docker_deviations ;;
    containerd) containerd_deviations ;;
  esac
}

docker_deviations() {
  file=/etc/docker/daemon.json
  text=$(tr -d ' \t\n' <"$file" 2>/dev/null) || text=
  case $text in
    *'"default-runtime":"nvidia"'*) ;;
    *) say "$file: default-runtime is not nvidia" ;;
  esac
  case $legacy$text in
    yes*'"cdi":true'*) say "$file: features.cdi is true; nvkind needs it off. Remove it" ;;
  esac
  engine_deviations
  docker_follows || say "docker: its default runtime is not nvidia but: $(docker_default)"
}

containerd_deviations() {
  # shellcheck disable=SC2046
  cat $(engine_files) /dev/null | grep -Eq '^ *default_runtime_name = "nvidia"' ||
    say "containerd: default_runtime_name is not nvidia in /etc/containerd"
  engine_deviations
}

engine_deviations() {
  active=$(systemctl is-active "$engine" 2>/dev/null) || :
  [ "$active" = active ] || say "$engine: is ${active:-unknown}, not active"
  [ ! -e "$restart_pending" ] || say "$engine: has not been restarted since its configuration changed"
}

verify() {
  deviations >"$work/deviations"
  if [ -s "$work/deviations" ]; then
    sed 's/^/nvidia-container-toolkit: /' "$work/deviations" >&2
    exit 1
  fi
  say "nvidia-container-toolkit $version, held"
}

remove() {
  held=$(apt-mark showhold)
  for package in $packages; do
    if printf '%s\n' "$held" | grep -qx "$package"; then quietly apt-mark unhold "$package"; fi
  done
  rm -f "$preferences" "$sources" "$keyring"
  say 'removed: hold, pin and package repository; packages and default runtime stay'
}

main() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  requirements
  # A run whose connection broke off may still be at work.
  exec 9>/run/lock/nvidia-container-toolkit
  flock -w 600 9 || fail 'another run has been at work here for ten minutes'
  case $1 in
    install)
      repository
      pin
      install_packages
      configure
      verify
      ;;
    verify | remove) "$1" ;;
    *) fail "install, verify or remove, not '$1'" ;;
  esac
}

main "$@" </dev/null
