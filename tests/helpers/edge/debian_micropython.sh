#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MicroPython's port for Linux from Debian 13 with the libraries that it needs, unpacked: nothing of it is installed.
#   sh tests/helpers/edge/debian_micropython.sh build/micropython
#   build/micropython/run script.py
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/new_folder.sh"
begin "$1" run
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
chmod 755 run
finish
