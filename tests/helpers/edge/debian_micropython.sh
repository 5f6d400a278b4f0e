#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MicroPython's port for Linux from Debian 13 with the libraries that it needs, unpacked: nothing of it is installed.
#   sh tests/helpers/edge/debian_micropython.sh build/micropython
#   build/micropython/run script.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")

[ -x "$out/run" ] && exit 0
rm -rf "$out"
new=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$new"' EXIT
cd "$new"
. "$here/debian_13.sh"
get --yes --download-only --no-install-recommends install micropython
for deb in apt/cache/archives/*.deb; do dpkg-deb -x "$deb" .; done
rm -rf apt
# its own loader and libraries, because those of an older release are too old for it
cat > run <<'RUN'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
lib=$(dirname "$(ls "$here"/usr/lib/*/libc.so.6)")
exec "$(ls "$lib"/ld-linux*.so.*)" --library-path "$lib" "$here/usr/bin/micropython" "$@"
RUN
chmod 755 run "$new"
mv "$new" "$out"
trap - EXIT
