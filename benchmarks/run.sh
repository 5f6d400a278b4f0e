#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one benchmark, by its name, after the packages that it needs: make bench NAME=edge
set -eu
PYTHON=.venv/bin/python
name=${1:-}
[ $# = 0 ] || shift

if [ "$name" = stack ]; then # bytes of the stack of each function of the kernel
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
    ${CC:-cc} -std=c99 -O2 -fstack-usage -c edge_runtime/hardcase_edge/kernel/hardcase.c -o "$folder/k.o"
    cut -d: -f4 "$folder/k.su" | sort -k2 -rn
    exit
fi
[ -n "$name" ] || {
    echo "make bench NAME=..., one of these:"
    exec $PYTHON -m benchmarks list
}
case "$name" in
ed25519 | edge | import | mcu | promise | synthetic)
    $PYTHON -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
    ;;
power_cuts_ext4) # on a disk that logs its writes
    [ "$(id -u)" = 0 ] && command -v fusermount3 >/dev/null && command -v mkfs.ext4 >/dev/null ||
        { echo "the cuts on ext4 need root: sudo apt install fuse3 e2fsprogs, then sudo make bench NAME=$name"; exit 2; }
    $PYTHON -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
    ;;
attack) sh tests/helpers/toolchains.sh mosquitto ;;
kserve) # MLServer, 326 MB, in an environment of its own
    [ -x build/mlserver/bin/mlserver ] || { python3 -m venv build/mlserver &&
        build/mlserver/bin/pip install --quiet --disable-pip-version-check mlserver; }
    ;;
esac
quiet=
[ "$name" != import ] || quiet="-W ignore" # of the libraries whose models it imports
# shellcheck disable=SC2086
exec $PYTHON $quiet -m benchmarks run "$name" "$@"
