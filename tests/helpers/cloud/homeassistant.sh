#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs Home Assistant into an environment of its own: sh tests/helpers/cloud/homeassistant.sh FOLDER
#
# 2024.3.3 is the last version for Python 3.11. Its pages, its cloud and Bluetooth are left out, which are half of its
# size; tests ask its API. Versions are those of its own list of constraints.
set -eu
folder=$1
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
put() {
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}
put --no-deps homeassistant==2024.3.3
constraints=$(echo "$folder"/lib/python3*/site-packages/homeassistant/package_constraints.txt)
# what pip says of the packages that are left out is no error
put -c "$constraints" aiohttp aiohttp-cors aiohttp-fast-url-dispatcher aiohttp-zlib-ng astral async-interrupt attrs \
    atomicwrites-homeassistant awesomeversion bcrypt certifi ciso8601 cryptography fnv-hash-fast httpx ifaddr janus Jinja2 \
    lru-dict orjson packaging paho-mqtt pillow psutil-home-assistant PyJWT pyOpenSSL python-slugify PyYAML requests \
    securetar==2024.2.1 SQLAlchemy typing-extensions ulid-transform urllib3 voluptuous voluptuous-serialize yarl 2>/dev/null
trap - EXIT
