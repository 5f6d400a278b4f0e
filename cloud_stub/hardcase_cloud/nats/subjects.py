# SPDX-License-Identifier: Apache-2.0
"""Topics of MQTT as subjects of NATS and back, as NATS's own MQTT listener maps them, for topics of hardcase.

A level ends with ``.`` instead of ``/``, a dot within a level becomes ``//``, and ``+`` becomes ``*``.
"""

from __future__ import annotations

import re

from hardcase_edge.errors import WireError

__all__ = ["subject_of", "topic_of"]

_SUBJECT = re.compile(r"(?:[A-Za-z0-9_+*-]|//)+(?:\.(?:[A-Za-z0-9_+*-]|//)+)*")


def subject_of(topic: str) -> str:
    """The subject of a topic or of a filter with ``+``.

    >>> subject_of("hardcase/v1/pump.7/request"), subject_of("hardcase/v1/+/request")
    ('hardcase.v1.pump//7.request', 'hardcase.v1.*.request')
    """
    return topic.replace(".", "\0").replace("/", ".").replace("\0", "//").replace("+", "*")


def topic_of(subject: str) -> str:
    """The topic of a subject.

    Raises
    ------
    WireError
        No topic of hardcase has this subject; ``reason`` is ``malformed``.

    Examples
    --------
    >>> topic_of("hardcase.v1.pump//7.request")
    'hardcase/v1/pump.7/request'
    """
    if len(subject) > 1000 or not _SUBJECT.fullmatch(subject) or "*" in subject:
        raise WireError("malformed", f"subject {subject[:120]!r} is not a topic's")
    return subject.replace("//", "\0").replace(".", "/").replace("\0", ".")
