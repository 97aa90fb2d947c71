"""What every host has in common: this machine's files, an SSH server, sudo, two users, and stand-ins."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

USER, GUEST = "ci", "guest"
"""Users of every host: one who may use sudo without a password, and one who may not."""

PACKAGES = "GPUFLEET_HOST_PACKAGES"
"""Variable that names a folder with .deb files, for a machine without `sshd`, `sudo` or `ping`: those of
openssh-server, sudo and iputils-ping, and of whatever they need that is not there. `apt-get download` fetches them."""

STAND_INS = pathlib.Path(__file__).parent / "stand_ins" / "host"

OWN_NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")

SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
PrintMotd no
"""
"""Like Debian's own, but for PAM: a chroot has no session to open. `AcceptEnv` is Debian's and Ubuntu's, so a client
that sends variables is refused here as it is there."""

SETUP = r"""
root=$1 packages=$2
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/layer,workdir=$root/work" "$root/merged"
cd "$root/merged"
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
mount --rbind /dev dev
mount -t proc proc proc
if [ -n "$packages" ]; then
  mkdir tmp/packages
  cp "$packages"/*.deb tmp/packages/
  printf '#!/bin/sh\nexit 101\n' > usr/sbin/policy-rc.d
  chmod 755 usr/sbin/policy-rc.d
  mkdir -p etc/ssh
  : > etc/ssh/ssh_host_ed25519_key
  : > etc/ssh/ssh_host_rsa_key
  : > etc/ssh/ssh_host_ecdsa_key
  rm -f var/lib/man-db/auto-update
  DEBIAN_FRONTEND=noninteractive chroot . sh -c 'dpkg --force-confnew --force-unsafe-io \
    --path-exclude="/usr/share/locale/*" --path-exclude="/usr/share/doc/*" --path-exclude="/usr/share/man/*" \
    -i /tmp/packages/*.deb' </dev/null
  rm -f etc/ssh/ssh_host_*
fi
chroot . useradd --create-home --shell /bin/sh --password '*' ci
chroot . useradd --create-home --shell /bin/sh --password '*' guest
mkdir -p etc/sudoers.d
printf 'ci ALL=(ALL) NOPASSWD: ALL\n' > etc/sudoers.d/ci
chmod 440 etc/sudoers.d/ci
# Whatever this machine has beside its packages would come first on PATH.
rm -rf usr/local/bin usr/local/sbin
mkdir usr/local/bin usr/local/sbin
rm -rf etc/apt/sources.list etc/apt/sources.list.d etc/apt/preferences.d var/lib/apt/lists
mkdir -p etc/apt/sources.list.d etc/apt/preferences.d var/lib/apt/lists/partial var/log/stand-ins
chmod 1777 var/log/stand-ins
# What a test leaves behind has to survive no power cut.
mkdir -p etc/dpkg/dpkg.cfg.d
echo force-unsafe-io > etc/dpkg/dpkg.cfg.d/tests
"""


@dataclass(frozen=True)
class BaseLayer:
    """A layer over this machine's root, from which hosts are made."""

    folder: pathlib.Path
    """Where it lies."""

    def copy_to(self, upper: pathlib.Path) -> None:
        """Makes the upper layer of a host. Not a second lower layer: overlayfs refuses one that lies in another.

        Whiteouts and extended attributes come along, which `shutil` leaves behind.
        """
        subprocess.run(["cp", "--archive", f"{self.folder}/layer", str(upper)], timeout=30, check=True)


def missing() -> list[str]:
    """What this machine lacks for the base layer; empty where it has all."""
    if PACKAGES in os.environ:
        return [] if shutil.which("dpkg") else ["dpkg"]
    path = "/usr/sbin:/usr/bin"
    lacks = [program for program in ("sshd", "sudo", "ping") if shutil.which(program, path=path) is None]
    return [f"{' and '.join(lacks)} ({PACKAGES} names no folder with their packages either)"] if lacks else []


def make(folder: pathlib.Path) -> BaseLayer:
    """Makes the layer in a folder; the mounts that it takes end with it."""
    for part in ("layer", "work", "merged"):
        (folder / part).mkdir(parents=True)
    done = subprocess.run(
        [*OWN_NAMESPACES, "sh", "-ec", SETUP, "sh", str(folder), os.environ.get(PACKAGES, "")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    layer = folder / "layer"
    (layer / "etc" / "ssh").mkdir(parents=True, exist_ok=True)
    (layer / "etc" / "ssh" / "sshd_config").write_text(SSHD_CONFIG)
    programs = layer / "usr" / "local" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for stand_in in STAND_INS.iterdir():
        shutil.copy(stand_in, programs / stand_in.name)
        (programs / stand_in.name).chmod(0o755)
    return BaseLayer(folder)
