# SPDX-License-Identifier: Apache-2.0
"""Mutated files of signed metadata: the device must refuse what python-tuf refuses, and never crash."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from hardcase_edge.errors import TrustError
from hardcase_edge.store.trust import Trust, first_trust, updated
from tests.helpers.attack.outcome import Outcome
from tests.helpers.edge.repository import NOW, Files, Repository, signed_again, tuf_accepts

VALUES: list[Any] = [None, True, -1, 0, 2**53, 2**70, 1.5, "", "x", "\U0001f600", "\ud83d", [], {}, [[]], {"": 0}]
NAMES = ("twin", "targets.json", "hashes", "")


def attack(seconds: float, seed: int) -> list[Outcome]:
    """As many mutations as the time allows."""
    return [mutated_metadata(10**9, seed, seconds)[0]]


def mutated_metadata(n: int, seed: int, seconds: float = 60.0) -> tuple[Outcome, int]:
    """The outcome of at most n mutations, and how many of them both sides accept."""
    repository, rng, end = Repository(), random.Random(seed), time.monotonic() + seconds
    trust = updated(first_trust(repository.roots[0]), *repository.publish(b"one"), now=NOW)
    repository.rotate()
    good = repository.publish(b"two")
    signers = {"root": repository.root_keys} | {role: [key] for role, key in repository.keys.items()}
    inputs = crashes = wrong = n_accepted = 0
    slowest = 0.0
    while inputs < n and time.monotonic() < end:
        role = rng.choice([*signers])
        old = good.roots[0] if role == "root" else getattr(good, role)
        envelope = mutate(json.loads(old), rng)
        data = json.dumps(envelope).encode()
        if rng.random() < 0.7:  # by a maker who holds the keys and errs
            try:
                data = signed_again(old, *signers[role], signed=envelope["signed"])
            except (KeyError, TypeError, ValueError, AssertionError):  # nobody can sign that
                continue
        files = good._replace(**{"roots": [data]} if role == "root" else {role: data})
        inputs, began = inputs + 1, time.process_time()
        try:
            is_accepted = bool(updated(trust, *files, now=NOW))
        except TrustError:
            is_accepted = False
        except Exception:
            crashes += 1
            continue
        slowest = max(slowest, time.process_time() - began)
        is_right = accepted_by_tuf(trust, files) or not is_accepted
        wrong += not is_right
        n_accepted += is_accepted and is_right
    return Outcome("mutated metadata", inputs, crashes, wrong, slowest), n_accepted


def accepted_by_tuf(trust: Trust, files: Files) -> bool:
    """python-tuf's verdict; an exception of another kind is a refusal, too."""
    try:
        return tuf_accepts(trust, files)
    except Exception:
        return False


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *[way for key, below in inner for way in places(below, (*at, key))]]


def mutate(envelope: Any, rng: random.Random) -> Any:
    """The envelope with one value replaced, removed, or under another name as well."""
    way = rng.choice([w for w in places(envelope) if w])
    holder = envelope
    for key in way[:-1]:
        holder = holder[key]
    if rng.random() < 0.3:
        del holder[way[-1]]
    elif rng.random() < 0.2 and isinstance(holder, dict):
        holder[rng.choice(NAMES)] = holder[way[-1]]
    else:
        holder[way[-1]] = rng.choice(VALUES)
    return envelope
