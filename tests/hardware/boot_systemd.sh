#!/usr/bin/env bash
# Copyright (c) 2026 cleanslate.gpu contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# boot_systemd.sh DEBS ROOT: as PID 1 of new namespaces (PID, mount, IPC, UTS, cgroup) becomes a systemd over an overlay of the machine's own
# root. DEBS is a folder with Debian packages of systemd and what it links; what the machine has already is kept. Nothing outside the
# overlay is written; /tmp, /dev and every other file system of the machine are shared, the network too.
set -eu
debs=$1 base=$2
mount --make-rprivate /
mkdir -p "$base"
mount -t tmpfs -o mode=755 node "$base"
mkdir "$base/upper" "$base/work" "$base/root"
# Read before the overlay is one of them.
mapfile -t mounts < <(awk '$5 != "/" {print $5}' /proc/self/mountinfo | grep -Ev "^(/proc|/sys|/dev|/run|/tmp|$base)(/|$)" | sort -u)
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
root=$base/root
for place in "${mounts[@]}" /tmp; do
    if [ -d "$place" ]; then mkdir -p "$root$place"; else [ -e "$root$place" ] || : >"$root$place"; fi
    mount --bind "$place" "$root$place" || echo "not shared: $place"
done
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"

for package in "$debs"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink --skip-old-files
done
units=$root/lib/systemd/system
# Only the journal: nothing that sets up devices, kernel settings, file systems, logins.
for wants in "$units"/*.wants "$root"/etc/systemd/system/*.wants; do
    find "$wants" -mindepth 1 ! -name 'systemd-journald*' -delete 2>/dev/null || true
done
rm -rf "$root"/lib/systemd/system-generators "$root"/usr/lib/udev/rules.d
: >"$root/etc/fstab"
python3 -c 'import uuid; print(uuid.uuid4().hex)' >"$root/etc/machine-id"
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nReadKMsg=no\n' >"$root/etc/systemd/journald.conf.d/node.conf"
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n' >"$root/etc/systemd/system/node.target"
grep -q '^sglang:' "$root/etc/group" || echo 'sglang:x:990:' >>"$root/etc/group"
grep -q '^sglang:' "$root/etc/passwd" || echo 'sglang:x:990:990::/var/lib/sglang:/usr/sbin/nologin' >>"$root/etc/passwd"
mkdir -p "$root/var/lib/sglang"
chown 990:990 "$root/var/lib/sglang"

cd "$root"
mkdir -p mnt/former
pivot_root . mnt/former
cd /
umount -l /mnt/former
exec env -i container=lxc PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=node.target --log-target=journal-or-kmsg --log-level=info --show-status=no </dev/null
