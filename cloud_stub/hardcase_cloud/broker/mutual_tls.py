# SPDX-License-Identifier: Apache-2.0
"""A folder of settings for a mosquitto that knows devices by their certificates (mutual TLS), and takes claims.

    8883   devices: a certificate of the authority's for devices; its common name is the user and the client id
    8884   workers, by passwords
    8885   claims: a certificate of the authority's for claims, which may ask for a device's certificate only

Revoked certificates are refused on both listeners. The broker reads the authority's files where they are.
"""

from __future__ import annotations

from pathlib import Path

from hardcase_edge.base.files import write_whole
from hardcase_edge.errors import InputError

from .acl import CONF, MARK, PASSWORDS, RULES, WORKERS, Written, check_own, limits, locked, without_head, write_users
from .rules import claim_patterns, device_patterns, names_of, rules_for

DEVICE_RULES, CLAIM_RULES = "hardcase.devices.acl", "hardcase.claims.acl"
MAX_CONNECTIONS = 20_016  # a process rarely may open more files


def write_mutual_tls(folder: str | Path, authority: str | Path, *, listen: str = "", **users: str | None) -> Written:
    """Write all files into a folder, which is made if need be; runs into one folder wait for each other.

    Parameters
    ----------
    folder : where the files go, and where mosquitto will read them
    authority : folder of ``hardcase ca init``
    listen : as of ``write_acl``
    users : as for ``rules.names_of``; without a name, the enrolment worker is called enroller

    Raises
    ------
    InputError
        A name is not valid or has two roles, the folder cannot be written, a file there is not of an earlier run, or
        the authority has no certificate for a broker.
    """
    users = {"enroller": "enroller", **users}
    rules = rules_for("mosquitto", (), **users)
    here, of = Path(folder).absolute(), Path(authority).absolute()
    for path in (here, of):
        if not str(path).isprintable():
            raise InputError(f"path {str(path)[:80]!r} does not fit a line of settings; choose another")
    if not (of / "server" / "cert.pem").exists():
        raise InputError(f"{of} has no certificate for a broker; make one: hardcase ca server {authority} HOST")
    texts = {
        RULES: f"{MARK}: acl_file\n{without_head(rules)}",
        DEVICE_RULES: f"{MARK}: acl_file\n{device_patterns()}",
        CLAIM_RULES: f"{MARK}: acl_file\n{claim_patterns()}",
    }
    with locked(here):
        for name in (CONF, *texts, WORKERS, PASSWORDS):
            check_own(here / name)
        written = write_users(here, [], list(names_of(**users).values()))
        for name, text in texts.items():
            write_whole(here / name, text.encode(), mode=0o640)
        at = f" {listen}" if listen else ""
        conf = CONF_TEXT.format(mark=MARK, here=here, of=of, most=MAX_CONNECTIONS, at=at) + limits(MAX_CONNECTIONS)
        write_whole(here / CONF, conf.encode())
    return written


CONF_TEXT = """\
{mark}: include_dir of mosquitto.conf, or its whole
# After hardcase ca revoke, SIGHUP has mosquitto read the list of revoked certificates again.

per_listener_settings true

# for devices: the name in a certificate is the user and the client id
listener 8883{at}
cafile {of}/public/devices.pem
certfile {of}/server/cert.pem
keyfile {of}/server/key.pem
require_certificate true
crlfile {of}/public/crl.pem
use_identity_as_username true
use_username_as_clientid true
allow_anonymous false
max_connections {most}
acl_file {here}/hardcase.devices.acl

# for workers, the enrolment worker and the watcher
listener 8884{at}
certfile {of}/server/cert.pem
keyfile {of}/server/key.pem
allow_anonymous false
max_connections 256
password_file {here}/hardcase.workers
acl_file {here}/hardcase.acl

# for claims: new devices ask for a certificate, and may do nothing else
listener 8885{at}
cafile {of}/public/claims.pem
certfile {of}/server/cert.pem
keyfile {of}/server/key.pem
require_certificate true
crlfile {of}/public/crl.pem
use_identity_as_username true
use_username_as_clientid true
allow_anonymous false
max_connections 256
acl_file {here}/hardcase.claims.acl
"""
