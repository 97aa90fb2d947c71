#!/bin/sh
# Snapshots of this member of etcd. `pulumi up` wrote this file and its configuration.
#
#   gpufleet-etcd-snapshot save          takes a snapshot, verifies it, and stores it away from this machine
#   gpufleet-etcd-snapshot list          lists the stored snapshots of all members, the latest last
#   gpufleet-etcd-snapshot fetch NAME    copies a stored snapshot into the current folder
#   gpufleet-etcd-snapshot restore FILE  stops this member and replaces its data with a snapshot
set -eu
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin
umask 077

state=/var/lib/gpufleet
configuration=/etc/gpufleet/gpufleet-etcd-snapshot.conf
# kubespray's environment of etcd and etcdctl (roles/etcd/templates/etcd.env.j2 at v2.31.0).
etcd_environment=/etc/etcd.env

fail() {
  printf 'gpufleet-etcd-snapshot: %s\n' "$*" >&2
  exit 1
}

# Runs a command; shows what it printed only where it fails.
quietly() {
  if ! output=$("$@" 2>&1); then
    printf '%s\n' "$output" | tail -n 5 >&2
    fail "failed: $*"
  fi
}

read_settings() {
  [ "$(id -u)" = 0 ] || fail "is run by $(id -un); run it as root"
  folder= bucket=
  set -a
  . "$configuration"
  [ -e "$etcd_environment" ] || fail "no $etcd_environment; kubespray has set up no etcd on this machine"
  . "$etcd_environment"
  set +a
  [ -z "$bucket" ] || command -v rclone >/dev/null || fail "no rclone on this machine; install its package"
}

save() {
  read_settings
  mkdir -p "$state"
  work=$(mktemp -d "$state/snapshot.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  snapshot=$(uname -n)-$(date -u +%Y%m%dT%H%M%SZ).db
  # A snapshot has no time limit of its own: it would wait for a member that is down.
  quietly etcdctl endpoint health
  quietly timeout 900 etcdctl snapshot save "$work/$snapshot"
  # Also verifies the hash at its end.
  quietly etcdutl snapshot status "$work/$snapshot"
  store
  prune
  date +%s >"$state/etcd-snapshot.last.new"
  mv "$state/etcd-snapshot.last.new" "$state/etcd-snapshot.last"
  echo "$snapshot"
}

store() {
  if [ -n "$bucket" ]; then
    quietly rclone copyto "$work/$snapshot" "snapshots:$bucket/$snapshot"
    return
  fi
  [ -d "$folder" ] || fail "$folder is no folder; mount the storage there"
  [ "$(stat -c %d "$folder")" != "$(stat -c %d "$ETCD_DATA_DIR")" ] ||
    fail "$folder is on the disk of etcd; mount storage of another machine there"
  cp "$work/$snapshot" "$folder/$snapshot.part"
  sync "$folder/$snapshot.part"
  mv "$folder/$snapshot.part" "$folder/$snapshot"
}

names() {
  if [ -n "$bucket" ]; then rclone lsf --files-only "snapshots:$bucket/"; else ls "$folder"; fi |
    grep -E '^.+-[0-9]{8}T[0-9]{6}Z\.db$' || :
}

# Deletes this member's oldest snapshots; the times in their names sort.
prune() {
  own=$(names | grep -E "^$(uname -n)-[0-9]{8}T[0-9]{6}Z\.db\$" | sort)
  surplus=$(($(printf '%s\n' "$own" | grep -c .) - keep))
  [ "$surplus" -gt 0 ] || return 0
  printf '%s\n' "$own" | head -n "$surplus" | while read -r old; do
    if [ -n "$bucket" ]; then quietly rclone deletefile "snapshots:$bucket/$old"; else rm -f "$folder/$old"; fi
  done
}

list() {
  read_settings
  names | sed 's/^\(.*\)-\([0-9TZ]*\)\.db$/\2 &/' | sort | cut -d ' ' -f 2
}

fetch() {
  read_settings
  if [ -n "$bucket" ]; then quietly rclone copyto "snapshots:$bucket/$1" "./$1"; else cp "$folder/$1" "./$1"; fi
}

# The data is replaced by renaming, so a run that is killed can be repeated. etcd is not started: a restored member has
# the cluster's old ID, so a member with newer data that still runs would make it panic (raft: tocommit out of range).
restore() {
  read_settings
  [ -f "$1" ] || fail "$1 is no file"
  quietly etcdutl snapshot status "$1"
  restored=$ETCD_DATA_DIR.restored
  rm -rf "$restored"
  # Revisions must grow: otherwise, watches of the API server would miss changes (etcd.io, disaster recovery).
  quietly etcdutl snapshot restore "$1" --data-dir "$restored" --name "$ETCD_NAME" \
    --initial-cluster "$ETCD_INITIAL_CLUSTER" --initial-cluster-token "$ETCD_INITIAL_CLUSTER_TOKEN" \
    --initial-advertise-peer-urls "$ETCD_INITIAL_ADVERTISE_PEER_URLS" --bump-revision 1000000000 --mark-compacted
  quietly systemctl stop etcd
  if [ -d "$ETCD_DATA_DIR" ]; then
    chown -R --reference="$ETCD_DATA_DIR" "$restored"
    mv "$ETCD_DATA_DIR" "$ETCD_DATA_DIR.before-$(date -u +%Y%m%dT%H%M%SZ)"
  fi
  mv "$restored" "$ETCD_DATA_DIR"
  echo "restored $1; the old data is in $ETCD_DATA_DIR.before-*; when every member is restored, start etcd on each"
}

case ${1:-}:$# in
  save:1 | list:1) "$1" ;;
  fetch:2 | restore:2) "$1" "$2" ;;
  *) fail "usage: save | list | fetch NAME | restore FILE" ;;
esac
