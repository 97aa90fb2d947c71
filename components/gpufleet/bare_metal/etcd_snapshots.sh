# Snapshots of etcd on this member, by a systemd timer. Values are set above this line.
#
#   install  installs program and timer, and takes a snapshot
#   remove   removes both; snapshots stay
#
# All of it is in functions, and the last line calls one: of a script that arrives in part, nothing runs.
set -eu
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin
umask 077

name=gpufleet-etcd-snapshot
# Not /usr/local: it is read-only on Flatcar.
file=/opt/bin/$name
units=/etc/systemd/system

# Puts standard input into a file at once, so that a kill leaves the old file or the new one.
write() {
  mkdir -p "${1%/*}"
  cat >"$1.new"
  chmod "$2" "$1.new"
  mv "$1.new" "$1"
}

install() {
  printf '%s' "$program" | write "$file" 755
  printf '%s' "$configuration" | write "/etc/gpufleet/$name.conf" 600
  write "$units/$name.service" 644 <<END
[Unit]
Description=Snapshot of etcd

[Service]
Type=oneshot
ExecStart=$file save
END
  write "$units/$name.timer" 644 <<END
[Unit]
Description=Snapshots of etcd

[Timer]
OnCalendar=$schedule
RandomizedDelaySec=600
Persistent=true

[Install]
WantedBy=timers.target
END
  systemctl daemon-reload
  systemctl enable --now "$name.timer"
  "$file" save
}

remove() {
  systemctl disable --now "$name.timer" || :
  rm -f "$units/$name.timer" "$units/$name.service" "/etc/gpufleet/$name.conf" "$file"
  systemctl daemon-reload
}

"$1" </dev/null
