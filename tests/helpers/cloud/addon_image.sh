#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the add-on's image by its Dockerfile, as root and without Docker's daemon, and runs its script in it:
#   make wheels && sh tests/helpers/cloud/addon_image.sh build/addon-image
#
# Home Assistant's base images are of a registry that may be out of reach: the base is Debian of this machine's mirror,
# with this machine's certificates for pip. Without a Supervisor the add-on's script must end with a word on the broker.
set -eu
for tool in buildah debootstrap; do
    command -v $tool >/dev/null || { echo "needed: sudo apt install buildah debootstrap"; exit 2; }
done
ls dist/hardcase_edge-*-none-any.whl >/dev/null || { echo "needed: make wheels"; exit 2; }
[ ! -e "$1" ] || { echo "$1 is there already"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
trap 'rm -rf "$folder"' EXIT
b() {
    verb=$1
    shift
    case $verb in from | commit | bud) set -- --signature-policy "$folder/policy.json" "$@" ;; esac
    buildah --root "$folder/store" --runroot "$folder/run" --storage-driver vfs "$verb" "$@"
}
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$folder/policy.json"
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/*$')
debootstrap --variant=minbase bookworm "$folder/base" "$mirror" >/dev/null
printf '[global]\ncert = /certificates/ca-certificates.crt\n' > "$folder/base/etc/pip.conf"
base=$(b from scratch)
b add -q "$base" "$folder/base" / >/dev/null
b commit -q "$base" localhost/base >/dev/null
cp -r examples/homeassistant/addon/hardcase "$folder/addon"
cp -r dist "$folder/addon/wheels"
b bud --isolation chroot --pull-never --network host --volume /etc/ssl/certs:/certificates:ro \
    --build-arg BUILD_FROM=localhost/base -t localhost/addon "$folder/addon" >"$folder/log" 2>&1 ||
    { tail -20 "$folder/log"; exit 1; }
b images
mkdir "$folder/data"
echo '{}' > "$folder/data/options.json"
addon=$(b from --pull-never localhost/addon)
said=$(b run --isolation chroot --volume "$folder/data:/data" "$addon" -- /venv/bin/python /run.py 2>&1 || true)
case $said in
*"names no broker"*) echo "its script runs, and says so where there is no Supervisor" ;;
*) echo "$said"; exit 1 ;;
esac
