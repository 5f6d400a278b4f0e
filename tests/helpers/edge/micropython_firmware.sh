#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MicroPython's sources from Debian 13, and of them a firmware for an emulated Cortex-M3 (mps2-an385), not installed.
#   sh tests/helpers/edge/micropython_firmware.sh build/micropython-source
#   qemu-system-arm -M mps2-an385 -kernel build/micropython-source/firmware.elf
set -eu
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")

[ -e "$out/firmware.elf" ] && exit 0
rm -rf "$out"
new=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$new"' EXIT
cd "$new"
mkdir -p apt/lists/partial apt/cache/archives/partial
: > apt/status
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" > apt/list
get() { # apt with lists of its own, so that the machine's learn nothing of another release
    apt-get -qq -o Dir::Etc::sourcelist="$new/apt/list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User= \
        -o Dir::State::lists="$new/apt/lists" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt/cache" "$@"
}
get update
get source --download-only micropython
tar -xf micropython_*.orig.tar.xz --strip-components=1
rm -rf apt micropython_*
make -s -C mpy-cross >/dev/null
make -s -C ports/qemu BOARD=MPS2_AN385 FROZEN_MANIFEST= -j2 >/dev/null
cp ports/qemu/build-MPS2_AN385/firmware.elf .
chmod 755 "$new"
mv "$new" "$out"
trap - EXIT
