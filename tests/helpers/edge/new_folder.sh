# SPDX-License-Identifier: Apache-2.0
# Sourced: begin FOLDER FILE goes into a new folder, or ends the script where FOLDER/FILE is; finish makes it FOLDER.
begin() {
    mkdir -p "$(dirname "$1")"
    out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
    [ -e "$out/$2" ] && exit 0
    rm -rf "$out"
    new=$(mktemp -d "$out.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    cd "$new"
}
finish() {
    chmod 755 "$new"
    mv "$new" "$out"
    trap - EXIT
}
