# SPDX-License-Identifier: Apache-2.0
"""Access rules for a real broker: which user may publish and read which topic, as the broker's own rule file.

A device logs in with its device id as user name. It may publish its own requests and status, and read its own replies.
It may fetch chunks of a bundle and read its own updates.
A worker may read all requests and publish all replies; a watcher may read all statuses; an updater may read all
statuses and fetches and publish all updates. All else is refused.
"""

from __future__ import annotations

from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import (
    check_device_id,
    fetch_topic,
    reply_topic,
    request_topic,
    status_topic,
    update_topic,
)

__all__ = ["BROKERS", "rules_for"]

Grants = list[tuple[str, str]]  # "read" or "write", and a topic


def rules_for(broker: str, *, worker: str = "worker", watcher: str | None = None, updater: str | None = None) -> str:
    """A rule file; comments at its top give the other settings that the broker needs.

    Parameters
    ----------
    broker : a key of ``BROKERS``
    worker : user name of all workers
    watcher : user name that may read the devices' statuses; None: no user may
    updater : user name that may offer bundles to devices; None: no user may

    Raises
    ------
    InputError
        A user name is not a valid device id, or two roles have the same name.
    """
    _check_names({"worker": worker, "watcher": watcher, "updater": updater})
    users = {worker: [("read", request_topic("+")), ("write", reply_topic("+"))]}
    if watcher is not None:
        users[watcher] = [("read", status_topic("+"))]
    if updater is not None:
        users[updater] = [("read", fetch_topic("+")), ("read", status_topic("+")), ("write", update_topic("+"))]
    return BROKERS[broker](users)


def _check_names(roles: dict[str, str | None]) -> None:
    """Refuse a name that would end its line early or match other users, or that has two roles."""
    role_of: dict[str, str] = {}
    for role, name in roles.items():
        if name is None:
            continue
        try:
            check_device_id(name)
        except InputError as error:
            raise InputError(
                f"user name {name[:80]!r} is not 1 to 64 letters, digits, '.', '_' or '-'; choose another"
            ) from error
        if name in role_of:
            raise InputError(f"{role_of[name]} and {role} are both called {name!r}; choose two names")
        role_of[name] = role


def _of_device(device: str) -> Grants:
    """What a device may publish and read."""
    writes = [request_topic(device), status_topic(device), fetch_topic(device)]
    return [*[("write", topic) for topic in writes], ("read", reply_topic(device)), ("read", update_topic(device))]


def _mosquitto(users: dict[str, Grants]) -> str:
    """The ``acl_file`` of mosquitto: ``%u`` is the user name; whatever no line grants is refused."""
    lines = [MOSQUITTO_HEAD]
    for user, grants in users.items():
        lines += [f"user {user}", *(f"topic {access} {topic}" for access, topic in grants)]
        lines += [f"topic deny {topic}" for _, topic in _of_device(user)]  # the patterns below would grant it
        lines.append("")
    lines += [f"pattern {access} {topic}" for access, topic in _of_device("%u")]
    return "\n".join(lines) + "\n"


def _emqx(users: dict[str, Grants]) -> str:
    """The ``acl.conf`` of EMQX: the first term that matches decides; ``${username}`` is the user name."""
    lines = [EMQX_HEAD]
    for user, grants in users.items():
        who = f'{{username, "{user}"}}'
        lines += [*_terms(who, grants), f'{{deny, {who}, all, ["#"]}}.', ""]
    lines += _terms(f'{{username, {{re, "{EMQX_DEVICE}"}}}}', _of_device("${username}"))
    return "\n".join([*lines, EMQX_FOOT]) + "\n"


def _terms(who: str, grants: Grants) -> list[str]:
    """Erlang terms that allow these grants."""
    actions = {"read": "subscribe", "write": "publish"}
    return [f'{{allow, {who}, {actions[access]}, ["{topic}"]}}.' for access, topic in grants]


BROKERS = {"mosquitto": _mosquitto, "emqx": _emqx}

MOSQUITTO_HEAD = """\
# Access rules of mosquitto 2 for hardcase. mosquitto.conf names this file and needs at least:
#
#   listener 8883
#   certfile /etc/mosquitto/certs/broker.pem
#   keyfile /etc/mosquitto/certs/broker.key
#   allow_anonymous false
#   password_file /etc/mosquitto/hardcase.users
#   acl_file /etc/mosquitto/hardcase.acl
#
# A device's user name is its device id: mosquitto_passwd /etc/mosquitto/hardcase.users DEVICE
#
# mosquitto grants every subscription and checks each message when it delivers it. So a worker's shared subscription
# needs no line of its own. But requests whose turn falls on a device that has joined the workers' group are lost:
# give the workers a --group that no device knows.
"""

EMQX_DEVICE = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # a user called "+" would be granted every device's topics
EMQX_HEAD = """\
%% Access rules of EMQX 5 for hardcase. emqx.conf names this file and needs at least:
%%
%%   listeners.tcp.default.enable = false
%%   listeners.ws.default.enable = false
%%   listeners.ssl.default {
%%     bind = "0.0.0.0:8883"
%%     ssl_options { certfile = "/etc/emqx/certs/broker.pem", keyfile = "/etc/emqx/certs/broker.key" }
%%   }
%%   authentication = [{ mechanism = password_based, backend = built_in_database, user_id_type = username }]
%%   authorization {
%%     no_match = deny
%%     sources = [{ type = file, enable = true, path = "/etc/emqx/hardcase.acl" }]
%%   }
%%
%% A device's user name is its device id. EMQX checks a shared subscription without its $share/GROUP/, so a worker's
%% needs no rule of its own.
"""
EMQX_FOOT = """
%% "#" does not match topics that begin with "$"; no_match = deny refuses those that are not named here.
{deny, all, all, ["$SYS/#", "$queue/#", "$stream/#"]}.
{deny, all}."""
