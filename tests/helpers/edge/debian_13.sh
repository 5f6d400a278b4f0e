# SPDX-License-Identifier: Apache-2.0
# Sourced in an empty folder: get runs apt on Debian 13, from this machine's mirror and below this folder's apt/ alone.
mkdir -p apt/lists/partial apt/cache/archives/partial
: > apt/status
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/*$')
key=/usr/share/keyrings/debian-archive-keyring.gpg
printf '%s\n' "deb [signed-by=$key] $mirror trixie main" "deb-src [signed-by=$key] $mirror trixie main" > apt/list
get() { # with lists of its own, so that the machine's learn nothing of another release
    apt-get -qq -o Dir::Etc::sourcelist="$new/apt/list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User= \
        -o Dir::State::lists="$new/apt/lists" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt/cache" "$@"
}
get update
