#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what tests need from the system, by apt as root; otherwise names it in one line, and ends with status 2.
#
#     sh tests/helpers/toolchains.sh packages          compilers, emulators and the other tools, by apt
#     sh tests/helpers/toolchains.sh tools             these, and what is built or unpacked below build/
#     sh tests/helpers/toolchains.sh mosquitto         the broker of the system tests
#     sh tests/helpers/toolchains.sh tflite-runtime    after make venv: the TFLite interpreter for 32-bit ARM
set -eu
PATH=$PATH:/usr/sbin:/sbin

# Compilers, emulators for 64-bit and 32-bit ARM, Xtensa and Cortex-M, Debian's Python for both kinds of Raspberry Pi, tools
# for FAT and partitions, an ssh server that tests start on loopback, systemd's checks of units, a browser for the
# reports, Node for JavaScript, a database and Prometheus. Home Assistant, by pip, takes 303 MB and about a minute.
TOOLCHAINS="gcc g++ libc6-dev python3-dev clang libclang-rt-dev make gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-xtensa-lx106 qemu-user \
qemu-system-arm mtools dosfstools fdisk openssh-server systemd chromium nodejs npm postgresql prometheus"
COMMANDS="cc g++ clang make aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc arm-none-eabi-gcc \
xtensa-lx106-elf-gcc qemu-aarch64 qemu-arm qemu-xtensa qemu-system-arm mcopy mkfs.vfat sfdisk sshd systemd-analyze chromium node promtool"

have() {
    for tool; do command -v "$tool" >/dev/null || return 1; done
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq &&
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# aside FOLDER SCRIPT WORDS: makes a folder of build/ while the next things are made, or says these words
aside() {
    { [ -d "build/$1" ] || sh "tests/helpers/$2" "build/$1" || echo "$3"; } &
}

packages() {
    if have node npm; then # a Node from elsewhere brings an npm beside which apt cannot install Debian's
        TOOLCHAINS=$(echo "$TOOLCHAINS" | sed "s/ nodejs npm//")
    fi
    # shellcheck disable=SC2086
    { have $COMMANDS && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; } || install $TOOLCHAINS ||
        { echo "needed: sudo apt install $TOOLCHAINS; then make toolchains again"; exit 2; }
}

case "${1:-}" in
packages) packages ;;
tools)
    packages
    aside homeassistant cloud/homeassistant.sh "pip could not install Home Assistant: its tests are left out"
    aside esphome export/esphome.sh "pip could not install ESPHome: its tests are left out"
    aside umqtt export/umqtt.sh "pip could not load umqtt: MicroPython's tests with a broker are left out"
    sh tests/helpers/edge/debian_python.sh arm64 build/python-arm64
    sh tests/helpers/edge/debian_python.sh armhf build/python-armhf
    sh tests/helpers/edge/debian_micropython.sh build/micropython
    [ -d build/node-red/node_modules/typescript ] || npm install --silent --no-audit --no-fund --prefix build/node-red \
        node-red@4 mqtt@5 axe-core@4 typescript@5 ||
        echo "npm could not install Node-RED: its tests are left out"
    sh tests/helpers/edge/micropython_firmware.sh build/micropython-source
    wait
    ;;
mosquitto)
    have mosquitto || install mosquitto ||
        { echo "mosquitto is needed for the system tests: sudo apt install mosquitto"; exit 2; }
    ;;
tflite-runtime) # it needs numpy 1, so tests run it in a process of its own
    [ -d build/tflite-runtime ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
        --no-deps --target build/tflite-runtime tflite-runtime==2.14.0 numpy==1.26.4 ||
        echo "tflite-runtime has no wheel for this Python: its tests are left out"
    ;;
*)
    echo "usage: sh tests/helpers/toolchains.sh packages | tools | mosquitto | tflite-runtime"
    exit 2
    ;;
esac
