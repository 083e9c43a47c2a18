"""What a virtual host is made of: namespaces, a copy-on-write root, and a first process that keeps sshd.

Its root is root: a host has its own network, files, processes and names, but it is no jail for hostile code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.lab.network import SYSTEM_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRAINER_UID = 4343  # an ordinary user; far from those that a real system hands out

SSHD = """\
Port 22
ListenAddress {address}
HostKey /etc/ssh/lab_host_key
PidFile {pid_file}
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PrintMotd no
Subsystem sftp internal-sftp
SetEnv PATH={path}
"""
SSHD_PID = "/run/sshd.pid"
# What an SSH session and `exec` find programs in: the interpreter that runs ddp-orch first.
HOST_PATH = f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# Where Linux systems keep programs; each may be a mount of its own.
SYSTEM_FOLDERS = ("/usr", "/usr/local", "/opt")

# Runs as the first process of the host's own namespaces, before its root is its root. An overlay of / shows every other
# mount as empty, so what lies on one is bound in, read-only. /root and /home are the host's own: this machine's keys
# and dotfiles are not for it.
INIT = r"""
set -e
mount --make-rprivate /
mkdir -p "$D/disk/upper" "$D/disk/work" "$D/disk/root-home" "$D/disk/home" "$D/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$D/disk/upper,workdir=$D/disk/work" "$D/root"
R=$D/root
mount -t tmpfs -o mode=755,size=16m tmpfs "$R/dev"
for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
    set -- $device
    mknod -m 666 "$R/dev/$1" c "$2" "$3"
done
mkdir "$R/dev/pts" "$R/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
ln -s /proc/self/fd "$R/dev/fd"
ln -s fd/0 "$R/dev/stdin"; ln -s fd/1 "$R/dev/stdout"; ln -s fd/2 "$R/dev/stderr"
mount -t tmpfs -o "mode=1777,size=$SHM" tmpfs "$R/dev/shm"
mount -t proc proc "$R/proc"
mount -t sysfs -o ro sysfs "$R/sys"
mount -t tmpfs -o mode=755,size=64m tmpfs "$R/run"
mount -t tmpfs -o "mode=1777,size=$TMP" tmpfs "$R/tmp"
mount --bind "$D/disk/root-home" "$R/root"
mount --bind "$D/disk/home" "$R/home"
chmod 711 "$R/root"
printf '%s\n' "$BINDS" | while IFS= read -r path; do
    [ -n "$path" ] || continue
    mkdir -p "$R$path"
    above=$(dirname "$path")
    while [ "$above" != / ]; do   # trainer has to get there too; this changes the host's copy alone
        chmod o+x "$R$above" 2> /dev/null || :
        above=$(dirname "$above")
    done
    mount --rbind "$path" "$R$path"
    mount -o remount,bind,ro "$R$path"
done
mkdir -p "$R/run/sshd"
hostname "$NAME"
rm -f "$R/etc/resolv.conf" "$R/etc/hosts" "$R/etc/hostname"
printf '%s\n' "$NAME" > "$R/etc/hostname"
printf '%s\n' "$HOSTS" > "$R/etc/hosts"
printf 'nameserver 127.0.0.1\n' > "$R/etc/resolv.conf"
if [ ! -e "$R/etc/ssh/lab_host_key" ]; then
    mkdir -p "$R/etc/ssh"
    install -m 600 "$D/host_key" "$R/etc/ssh/lab_host_key"
    sed -i 's/^root:[^:]*:/root:*:/' "$R/etc/shadow"   # a locked account ("!") is refused even with a key
    sed -i '/^trainer:/d' "$R/etc/passwd" "$R/etc/group" "$R/etc/shadow"
    echo "trainer:x:$TRAINER:$TRAINER::/home/trainer:/bin/bash" >> "$R/etc/passwd"
    echo "trainer:x:$TRAINER:" >> "$R/etc/group"
    echo "trainer:*:19000:0:99999:7:::" >> "$R/etc/shadow"
    mkdir -p "$R/root/.ssh" "$R/home/trainer/.ssh"
    for home in root home/trainer; do
        install -m 600 "$KEY.pub" "$R/$home/.ssh/authorized_keys"
        chmod 700 "$R/$home/.ssh"
    done
    chown -R "$TRAINER:$TRAINER" "$R/home/trainer"
fi
install -m 600 "$D/sshd_config" "$R/etc/ssh/lab_sshd_config"
export HOME=/root
cd "$R"
pivot_root . .   # this machine's own mounts are out of the host's reach
umount -l .
# sh as the first process: it collects orphans, also when sshd is gone, and another sshd may be started by hand.
exec chroot . /bin/sh -c 'cd /; /usr/sbin/sshd -D -e -f /etc/ssh/lab_sshd_config & while :; do wait; sleep 0.2; done'
"""


def sshd_config(address: str, options: Sequence[str]) -> str:
    """Return a host's sshd_config.

    Args:
        address: where sshd listens.
        options: further lines, each in place of ours with the same keyword; a Match block comes last.
    """
    ours = SSHD.format(address=address, path=HOST_PATH, pid_file=SSHD_PID).splitlines()
    replaced = {line.split(maxsplit=1)[0].lower() for line in options if line.strip()}
    kept = [line for line in ours if line.split(maxsplit=1)[0].lower() not in replaced]
    return "".join(f"{line}\n" for line in [*kept, *options])


def bound_paths() -> list[str]:
    """Return what a host sees of this machine's other mounts, read-only: the interpreter, its packages, the system."""
    wanted = {os.path.realpath(sys.base_prefix), sys.prefix, os.path.realpath(sys.prefix)} - {"/", *SYSTEM_FOLDERS}
    return sorted(wanted | {path for path in SYSTEM_FOLDERS if Path(path).is_mount()})


def boot(
    folder: Path, *, namespace: str, name: str, hosts_file: str, key: Path, sizes: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a host and return the process that holds its namespaces; killing that kills all of it.

    Args:
        folder: the host's folder, with host_key and sshd_config in it, and its disk mounted at disk/.
        namespace: its network namespace.
        name: its hostname.
        hosts_file: content of its /etc/hosts.
        key: the lab's private key; key.pub may log in as root and as trainer.
        sizes: of "shm" and "tmp", as mount writes them.
    """
    env = {
        "PATH": SYSTEM_PATH,
        "LC_ALL": "C",
        "D": str(folder),
        "NAME": name,
        "HOSTS": hosts_file,
        "KEY": str(key),
        "BINDS": "\n".join(bound_paths()),
        "TRAINER": str(TRAINER_UID),
        "SHM": sizes["shm"],
        "TMP": sizes["tmp"],
    }
    isolated = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
    with (folder / "console.log").open("ab") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", namespace, *isolated, "/bin/sh", "-c", INIT],
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
        )  # fmt: skip
