#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs Home Assistant into an environment of its own: sh tests/helpers/cloud/homeassistant.sh FOLDER [PYTHON]
#
# 2024.3.3 is the last version for Python 3.11, and 2025.4.4 for 3.13.0. Its pages are left out, and of 2024.3.3 its
# cloud and Bluetooth, too, which are half of its size; tests ask its API. Versions are those of its own constraints.
set -eu
folder=$1
trap 'rm -rf "$folder"' EXIT
"${2:-python3}" -m venv "$folder"
put() {
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}
version=$("$folder/bin/python" -c "import sys; print('2025.4.4' if sys.version_info >= (3, 13) else '2024.3.3')")
put --no-deps "homeassistant==$version"
constraints=$(echo "$folder"/lib/python3*/site-packages/homeassistant/package_constraints.txt)
needed="aiohttp aiohttp-cors aiohttp-fast-url-dispatcher aiohttp-zlib-ng astral async-interrupt attrs
    atomicwrites-homeassistant awesomeversion bcrypt certifi ciso8601 cryptography fnv-hash-fast httpx ifaddr janus
    Jinja2 lru-dict orjson packaging pillow psutil-home-assistant PyJWT pyOpenSSL python-slugify PyYAML requests
    securetar==2024.2.1 SQLAlchemy typing-extensions ulid-transform urllib3 voluptuous voluptuous-serialize yarl"
[ "$version" = 2024.3.3 ] || needed="jsonpath $("$folder/bin/python" -c "
from importlib.metadata import requires
print(*(name for name in requires('homeassistant') if not name.startswith(('numpy=', 'uv='))))")"
# what pip says of the packages that are left out is no error
# shellcheck disable=SC2086
put -c "$constraints" paho-mqtt $needed 2>/dev/null
trap - EXIT
