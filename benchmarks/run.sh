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
budgeted | ed25519 | edge | import | mcu | micropython | promise | synthetic)
    $PYTHON -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
    ;;
attack) sh tests/helpers/toolchains.sh mosquitto ;;
esac
quiet=
[ "$name" != import ] || quiet="-W ignore" # of the libraries whose models it imports
# shellcheck disable=SC2086
exec $PYTHON $quiet -m benchmarks run "$name" "$@"
