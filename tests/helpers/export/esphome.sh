#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs ESPHome into an environment of its own: sh tests/helpers/export/esphome.sh FOLDER
#
# 251 MB and less than a minute. Its compilers are not of the package index: tests compile with the system's.
set -eu
folder=$1
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile esphome==2026.6.5
trap - EXIT
