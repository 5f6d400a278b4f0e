#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MicroPython's umqtt.simple and mpremote from PyPI: sh tests/helpers/export/umqtt.sh FOLDER
#
# The archive of umqtt.simple has no setup.py: pip checks the hash, unpacks it, says that it is no project, and leaves it there.
set -eu
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
echo "micropython-umqtt.simple==1.3.4 \
    --hash=sha256:b6a2520239e3992c63a7de9370ee9b3d9d27819a90359c521f1c0f7ccab8d12f" > "$new/wanted"
TMPDIR=$new python3 -m pip --no-cache-dir download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
    --no-clean -r "$new/wanted" 2>/dev/null || true
found=$(find "$new" -path '*/umqtt/simple.py')
[ -n "$found" ]
mkdir -p "$1/umqtt"
cp "$found" "$1/umqtt/simple.py"
python3 -m pip install --quiet --disable-pip-version-check --target "$1/mpremote" mpremote==1.29.0
