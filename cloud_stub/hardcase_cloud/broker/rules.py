# SPDX-License-Identifier: Apache-2.0
"""Access rules for a real broker: which user may publish and read which topic, as the broker's own rule file.

A device logs in with its device id as user name. It may publish its own requests, state, facts, decisions and audits,
fetch chunks of a bundle, and read its own replies, acknowledgements and updates. A worker may read all requests and
publish all replies. A watcher may read all states, facts and decisions, but no readings. A store may read all states,
facts, decisions and audits and acknowledge records. An updater may read all states, facts and fetches, publish all
updates, ask for installs, and send requests under its own name. All else is refused. A tenant has users of these roles
of its own, ``TENANT/USER``, who see its devices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.identity.messages import enrol_topic, enrolled_topic
from hardcase_edge.link.wire import (
    ack_topic,
    audit_topic,
    check_name,
    decision_topic,
    devices_of,
    facts_topic,
    fetch_topic,
    install_topic,
    reply_topic,
    request_topic,
    status_topic,
    tenant_of,
    update_topic,
)

Grants = list[tuple[str, str]]  # "read" or "write", and a topic


# What users other than devices may do with the topics of their devices, by their role.
ROLES: dict[str, list[tuple[str, Callable[[str], str]]]] = {
    "worker": [("read", request_topic), ("write", reply_topic)],
    "watcher": [("read", status_topic), ("read", facts_topic), ("read", decision_topic)],
    "store": [
        ("read", decision_topic),
        ("read", audit_topic),
        ("read", status_topic),
        ("read", facts_topic),
        ("write", ack_topic),
    ],
    "updater": [
        ("read", fetch_topic),
        ("read", status_topic),
        ("read", facts_topic),
        ("write", update_topic),
        ("write", install_topic),
    ],
    "enroller": [("read", enrol_topic), ("write", enrolled_topic)],
}


def rules_for(broker: str, tenants: Sequence[str] = (), **users: str | None) -> str:
    """A rule file; comments at its top give the other settings that the broker needs.

    Parameters
    ----------
    broker : a key of ``BROKERS``
    tenants : names of tenants, who have users of the same roles beside those of devices without a tenant
    users : as for ``names_of``

    Raises
    ------
    InputError
        As of ``names_of``.
    """
    return BROKERS[broker](
        {
            user: [(access, topic(devices_of(tenant_of(user)))) for access, topic in ROLES[role]] + _own(user, role)
            for user, role in users_of(tenants, **users).items()
        }
    )


def users_of(tenants: Sequence[str] = (), **users: str | None) -> dict[str, str]:
    """The role of each user who is not a device; parameters and errors as of ``rules_for``.

    >>> users_of(["acme"], store="keeper")
    {'worker': 'worker', 'keeper': 'store', 'acme/worker': 'worker', 'acme/keeper': 'store'}
    """
    names = names_of(**users)
    heads = ["", *(f"{check_name(tenant, 'tenant')}/" for tenant in tenants)]
    return {f"{head}{name}": role for head in heads for role, name in names.items() if not head or role != "enroller"}


def names_of(**users: str | None) -> dict[str, str]:
    """User names by role.

    Parameters
    ----------
    users : by role of ``ROLES``; None: no user has that role; without a name, all workers are called worker

    Raises
    ------
    InputError
        A user name is not a valid device id, or two of them are the same.
    """
    names = {role: name for role, name in {"worker": "worker", **users}.items() if name is not None}
    _check_names(names)
    return names


def device_patterns() -> str:
    """mosquitto's rules of a listener for devices with certificates: their topics, and the renewal of certificates."""
    return _patterns([*_of_device("%u"), *_of_sender("%u")])


def claim_patterns() -> str:
    """mosquitto's rules of a listener for claims, which may ask for a certificate and nothing else."""
    return _patterns(_of_sender("%u"))


def _check_names(roles: dict[str, str]) -> None:
    """Refuse a name that would end its line early or match other users, and one that two roles have."""
    by_name: dict[str, str] = {}
    for role, name in roles.items():
        try:
            check_name(name)
        except InputError as error:
            raise InputError(
                f"user name {name[:80]!r} is not 1 to 64 letters, digits, '.', '_' or '-'; choose another"
            ) from error
        if name in by_name:
            raise InputError(f"{by_name[name]} and {role} are both called {name!r}; choose two names")
        by_name[name] = role


def _of_device(device: str) -> Grants:
    """What a device may publish and read."""
    written = (request_topic, status_topic, facts_topic, decision_topic, audit_topic, fetch_topic)
    read = (reply_topic, ack_topic, update_topic, install_topic)
    return [("write", topic(device)) for topic in written] + [("read", topic(device)) for topic in read]


def _own(user: str, role: str) -> Grants:
    """What a user may do with topics of its own name: an updater asks whether a worker answers a bundle's f0."""
    return [("write", request_topic(user)), ("read", reply_topic(user))] if role == "updater" else []


def _of_sender(sender: str) -> Grants:
    """What a device or a claim may publish and read to get a certificate."""
    return [("write", enrol_topic(sender)), ("read", enrolled_topic(sender))]


def _patterns(grants: Grants) -> str:
    return "".join(f"pattern {access} {topic}\n" for access, topic in grants)


def _mosquitto(users: dict[str, Grants]) -> str:
    """The ``acl_file`` of mosquitto: ``%u`` is the user name; whatever no line grants is refused."""
    lines = [MOSQUITTO_HEAD]
    for user, grants in users.items():
        lines += [f"user {user}", *(f"topic {access} {topic}" for access, topic in grants)]
        denied = [grant for grant in _of_device(user) if grant not in grants]
        lines += [f"topic deny {topic}" for _, topic in denied]  # the patterns below would grant it
        lines.append("")
    return "\n".join(lines) + "\n" + _patterns(_of_device("%u"))


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

# a user called "+" would be granted every device's topics
EMQX_DEVICE = "^([A-Za-z0-9][A-Za-z0-9._-]{0,63}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
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
