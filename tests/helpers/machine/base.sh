#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A machine for tests, as root: a card with a small Debian in the shape of Raspberry Pi OS, and a kernel that QEMU boots.
#   sh tests/helpers/machine/base.sh build/machine
# It leaves card.img (a FAT boot partition, an ext4 root), vmlinuz and initrd; what is there already stays.
set -eu
suite=bookworm
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ -e "$out/card.img" ] && exit 0
PATH=$PATH:/usr/sbin:/sbin
new=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$new"' EXIT
cd "$new"

# The system: what Raspberry Pi OS has, too, and hardcase needs. Locales and pages are left out.
echo "debootstrap fetches and unpacks $suite: two minutes or more"
debootstrap --variant=minbase --include=systemd-sysv,udev,kmod,python3,dosfstools "$suite" root >debootstrap.log 2>&1 ||
    { tail -3 debootstrap.log >&2; exit 1; }
rm -rf root/var/cache/apt/* root/var/lib/apt/lists/* root/usr/share/doc/* root/usr/share/locale/* root/usr/share/man/*

echo "the kernel and the first file system"
# The kernel is unpacked, not installed; only modules that the machine needs come along.
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: \(linux-image-\)/\1/p')
apt-get -qq -o APT::Sandbox::User=root download "$package"
dpkg-deb -x "$package"_*.deb kernel
version=${package#linux-image-}
cp "kernel/boot/vmlinuz-$version" vmlinuz
mkdir -p "root/lib/modules/$version"
depmod -b "$new/kernel" "$version"
needed() { # the files of modules, each after those that it needs
    for name in "$@"; do modprobe -d "$new/kernel" -S "$version" --show-depends "$name"; done |
        sed -n 's/^insmod //p' | awk '!seen[$1]++ { print $1 }'
}
for file in $(needed virtio_pci virtio_blk virtio_net virtio_rng vfat nls_cp437 nls_ascii nls_iso8859-1); do
    name=${file#"$new/kernel/"}
    mkdir -p "root/$(dirname "$name")"
    cp "$file" "root/$name"
done
cp "kernel/lib/modules/$version/modules.builtin" "kernel/lib/modules/$version/modules.order" "kernel/lib/modules/$version/modules.builtin.modinfo" \
    "root/lib/modules/$version/"
depmod -b "$new/root" "$version"

# The first file system: it finds the card, mounts the root and goes there.
mkdir -p first/bin first/proc first/sys first/dev first/card
cp "$(command -v busybox)" first/bin/busybox
for file in $(needed virtio_pci virtio_blk); do
    cp "$file" first/
    echo "/bin/busybox insmod /$(basename "$file")"
done >insmod
cat >first/init <<END
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
$(cat insmod)
init=/sbin/init
for word in \$(/bin/busybox cat /proc/cmdline); do case \$word in init=*) init=\${word#init=};; esac; done
until [ -b /dev/vda2 ]; do /bin/busybox usleep 50000; done
/bin/busybox mount -t ext4 -o ro /dev/vda2 /card
/bin/busybox mount --move /dev /card/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /card "\$init" "\$@"
END
chmod 755 first/init
(cd first && find . | cpio --quiet -o -H newc | gzip) >initrd

# Settings, as Raspberry Pi OS has them where it has any.
mkdir -p root/boot/firmware
echo pi >root/etc/hostname
: >root/etc/machine-id
printf '%s\n' '/dev/vda1 /boot/firmware vfat defaults 0 2' '/dev/vda2 / ext4 defaults,noatime 0 1' >root/etc/fstab
printf '%s\n' '[Match]' 'Name=en* eth*' '[Network]' 'DHCP=ipv4' >root/etc/systemd/network/80-card.network
systemctl --root=root --quiet enable systemd-networkd
systemctl --root=root --quiet mask serial-getty@.service getty@.service getty-static.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-networkd-wait-online.service

echo "the card's partitions and file systems"
# The card: partitions, then a file system in each.
truncate -s 800M new.img
printf '%s\n' 'label: dos' 'start=2048, size=131072, type=c' 'start=133120, type=83' | sfdisk --quiet new.img
mkfs.vfat -F 32 -s 1 --offset 2048 new.img 65536 >/dev/null 2>mkfs.log
for line in 'cmdline.txt console=ttyS0 root=/dev/vda2 rootfstype=ext4 fsck.repair=yes rootwait quiet' \
    'config.txt arm_64bit=1' 'issue.txt Raspberry Pi reference 2024-07-04'; do
    echo "${line#* }" | mcopy -i new.img@@1M - "::${line%% *}"
done
mkfs.ext4 -q -d root -E offset=$((133120 * 512)) new.img $((800 * 1024 - 133120 / 2))k

mv vmlinuz initrd "$out/"
mv new.img "$out/card.img"
