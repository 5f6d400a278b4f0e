#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The emulated machine, with the packages that it needs; make machine calls it.
#
#     sh tests/helpers/machine/machine.sh packages            what apt installs for all of these
#     sh tests/helpers/machine/machine.sh card                a card with Debian, to be flashed: build/machine/card.img;
#                                                             some three minutes the first time
#     sh tests/helpers/machine/machine.sh boot CARD           boots a flashed copy, and shows its journal until Ctrl-C
#     sh tests/helpers/machine/machine.sh try [--cuts N]      a flashed card boots, hangs, is updated, and its power is
#                                                             cut; some six minutes more
set -eu
PATH=$PATH:/usr/sbin:/sbin
PACKAGES="qemu-system-x86 debootstrap e2fsprogs dosfstools mtools fdisk kmod cpio busybox-static"

have() {
    for tool; do command -v "$tool" >/dev/null || return 1; done
}

packages() {
    [ "$(id -u)" = 0 ] && have apt-get ||
        { echo "the emulated machine needs root, on a Debian: as root, make machine"; exit 2; }
    # shellcheck disable=SC2086
    have qemu-system-x86_64 debootstrap mkfs.ext4 mkfs.vfat mcopy sfdisk modprobe cpio busybox ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends $PACKAGES >/dev/null; } ||
        { echo "needed: apt install $PACKAGES"; exit 2; }
    sh tests/helpers/toolchains.sh mosquitto
}

card() {
    packages
    sh tests/helpers/machine/base.sh build/machine
    ls -l build/machine/card.img
}

what=${1:-}
[ $# = 0 ] || shift
case "$what" in
packages) packages ;;
card) card ;;
boot)
    [ -f "${1:-}" ] && [ -f build/machine/vmlinuz ] || {
        echo "needed: make machine DO=card, then make machine DO=boot CARD=IMAGE, a flashed copy of build/machine/card.img"
        exit 2
    }
    exec .venv/bin/python -m tests.helpers.machine.boot "$1"
    ;;
try)
    card
    exec .venv/bin/python -m benchmarks run machine "$@"
    ;;
*)
    echo "make machine DO=card, DO=boot CARD=IMAGE, or without DO"
    exit 2
    ;;
esac
