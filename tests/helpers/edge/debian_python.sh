#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian's Python for another processor, unpacked, with its headers: nothing of it is installed or run, and no root is needed.
#   sh tests/helpers/edge/debian_python.sh arm64 build/python-arm64
#   qemu-aarch64 -L build/python-arm64 build/python-arm64/usr/bin/python3 --version
set -eu
processor=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/new_folder.sh"
begin "$2" usr/include
mkdir -p apt/lists/partial apt/cache/archives/partial
: > apt/status
get() { # apt with lists of its own, so that the machine's learn nothing of another processor
    apt-get -qq -o APT::Architecture="$processor" -o APT::Architectures="$processor" -o APT::Sandbox::User= \
        -o Dir::State::lists="$new/apt/lists" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt/cache" "$@"
}
get update || echo "some package lists are missing; going on with those that are here" >&2
get --yes --download-only --no-install-recommends install python3-minimal libpython3-stdlib
for deb in apt/cache/archives/*.deb; do dpkg-deb -x "$deb" .; done
get download "lib$(readlink usr/bin/python3)-dev"
dpkg-deb --fsys-tarfile ./*.deb | tar -x ./usr/include
rm ./*.deb
rm -rf apt
finish
