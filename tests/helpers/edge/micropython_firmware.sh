#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MicroPython's sources from Debian 13, and of them a firmware for an emulated Cortex-M3 (mps2-an385), not installed.
#   sh tests/helpers/edge/micropython_firmware.sh build/micropython-source
#   qemu-system-arm -M mps2-an385 -kernel build/micropython-source/firmware.elf
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/new_folder.sh"
begin "$1" firmware.elf
. "$here/debian_13.sh"
get source --download-only micropython
tar -xf micropython_*.orig.tar.xz --strip-components=1
rm -rf apt micropython_*
make -s -C mpy-cross >/dev/null
make -s -C ports/qemu BOARD=MPS2_AN385 FROZEN_MANIFEST= -j2 >/dev/null
cp ports/qemu/build-MPS2_AN385/firmware.elf .
finish
