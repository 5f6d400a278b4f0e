# SPDX-License-Identifier: Apache-2.0
"""What a store holds, in a few words for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .slots import NAMES
from .trust import trust_from

if TYPE_CHECKING:
    from .folder import Store


def describe(store: Store) -> dict[str, Any]:
    """What runs, or will at the next start, both slots, and the versions that are trusted.

    Raises
    ------
    StoreError, TrustError
        The state or the trust is damaged.
    """
    slots, data = store.slots(), store.trust()
    trust = None if data is None else trust_from(data)
    texts = {}
    for name in NAMES:
        slot = slots[name]
        state = "behind" if name == slots.behind else slot.state
        why = slot.reason or ("has worked" if slot.worked and slot.has_worked else "")
        words = [state, slot.sha256, f"({why})" if why else ""]
        texts[f"slot_{name}"] = " ".join([word for word in words if word])
    return {
        "runs": slots.ready or slots.runs or None,
        "current": slots.current or None,
        **texts,
        "starts": sum(slots[name].starts for name in NAMES if slots[name].state == "trial"),
        "root": trust.root.version if trust else None,
        "targets": trust.targets.version if trust and trust.targets else None,
    }
