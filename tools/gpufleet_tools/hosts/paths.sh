# Measures paths from this host to others, one result a line. The caller appends its measurements, which run at the same
# time, and `finish`. Each has its own time limit, so none keeps another from being printed.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

result() { printf '%s\n' "$*"; }

# connect NAME ADDRESS PORT: bash has /dev/tcp, and every supported distribution has bash.
connect() {
  said=$(timeout 3 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>&1)
  case $?:$said in
    0:*) result connect "$1" "$3" open ;;
    *refused*) result connect "$1" "$3" refused ;;
    124:*) result connect "$1" "$3" silent ;;
    *route* | *unreachable* | *prohibited* | *denied* | *"not permitted"*) result connect "$1" "$3" rejected ;;
    *) result connect "$1" "$3" unknown ;;
  esac
}

echoes() { ping -n -c 2 -i 0.3 -W 1 -M do -s "$2" "$1" >/dev/null 2>&1; }

# packets NAME ADDRESS: MTU of the interface towards the address, and the largest packet that comes back from there.
packets() {
  case $2 in *:*) headers=48 ;; *) headers=28 ;; esac
  interface=$(ip -o route get "$2" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')
  mtu=$(cat "/sys/class/net/$interface/mtu" 2>/dev/null)
  largest=unknown
  for size in "${mtu:-1500}" 8900 1500 1480 1450 1420 1400 1350 1280; do
    if [ "$size" -le "${mtu:-1500}" ] && echoes "$2" $((size - headers)); then
      largest=$size
      break
    fi
  done
  result packets "$1" "${mtu:-unknown}" "$largest"
}

# round_trip NAME ADDRESS: mean in milliseconds.
round_trip() {
  mean=$(ping -n -q -c 5 -i 0.2 -W 2 "$2" 2>/dev/null | sed -n 's|^r[a-z]*t* min/avg/max[^=]*= [^/]*/\([0-9.]*\)/.*|\1|p')
  result round_trip "$1" "${mean:-unknown}"
}

# sync_disk FOLDER: mean milliseconds of 100 synchronous writes of the size of etcd's, to a file that is removed.
sync_disk() {
  folder=/var/lib
  if [ -d "$1" ]; then folder=$1; fi
  file=$(mktemp "$folder/.gpufleet-XXXXXX" 2>/dev/null) || return
  trap 'rm -f "$file"' EXIT
  seconds=$(timeout 10 dd if=/dev/zero of="$file" bs=2300 count=100 oflag=dsync 2>&1 |
    sed -n 's/.*, \([0-9.e-]*\) s, .*/\1/p')
  result sync_disk "${seconds:-unknown}"
}

finish() {
  wait
  result complete
}
