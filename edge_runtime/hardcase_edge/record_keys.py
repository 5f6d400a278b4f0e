# SPDX-License-Identifier: Apache-2.0
"""The one table of the keys that lines and records have: who says a key, what it holds, and how far it comes.

A device says a line of each decision. The outbox makes records of lines and of audits from the keys that are kept, a
store keeps a record's JSON as it came, and a store's CSV and Parquet have the keys that are columns, in the order of
this table. What a key means is written in the table of its page: docs/devices.md for lines, docs/labels.md for lines of
items of several parts, and docs/SPEC-wire-v1.md, section 5, for the rest.
"""

from __future__ import annotations

from .base.record import record

__all__ = ["COLUMNS", "COPIED", "KEYS", "Key"]

LINE, OF_ONE, OF_PARTS = "line", "line of a decision", "line of an item of several parts"  # LINE: of both
RECORD, AUDIT, STORE = "record", "record of an audit", "store"
TEXT, INTEGER, NUMBER, BOOLEAN, LIST, OBJECT = "text", "integer", "number", "boolean", "list", "object"
COST = "the bundle's unit of cost"


@record(frozen=True, slots=True)
class Key:
    """One key; ``origin`` is who says it, ``is_kept`` whether a record has it, ``is_column`` whether tables do."""

    name: str
    origin: str
    type: str
    unit: str = ""
    is_kept: bool = True
    is_column: bool = False


KEYS = (
    Key("device", RECORD, TEXT, is_column=True),
    Key("boot", RECORD, INTEGER, is_column=True),
    Key("sequence", RECORD, INTEGER, is_column=True),
    Key("kind", RECORD, TEXT, is_column=True),
    Key("received", STORE, NUMBER, "s", is_kept=False, is_column=True),
    Key("time", STORE, NUMBER, "s", is_kept=False, is_column=True),
    Key("at", RECORD, NUMBER, "s", is_column=True),
    Key("t", RECORD, NUMBER, "s"),  # a line has one, too, which is not copied: a record's is null without a clock
    Key("bundle", RECORD, TEXT, is_column=True),
    Key("label", OF_ONE, TEXT, is_column=True),
    Key("value", OF_ONE, NUMBER, "the target's", is_column=True),
    Key("interval", OF_ONE, LIST, "the target's"),
    Key("confidence", LINE, NUMBER, is_column=True),
    Key("route", LINE, TEXT, is_column=True),
    Key("cost", LINE, NUMBER, COST, is_column=True),
    Key("sensors", OF_ONE, LIST, is_kept=False),
    Key("failed", LINE, LIST, is_column=True),
    Key("unpaid", LINE, LIST),
    Key("out_of_range", LINE, LIST, is_kept=False),
    Key("atypical", LINE, NUMBER),
    Key("latency_ms", LINE, NUMBER, "ms", is_column=True),
    Key("price", OF_ONE, NUMBER, "levels"),
    Key("item_size", OF_ONE, INTEGER, is_column=True),
    Key("budget", OF_ONE, NUMBER, COST, is_column=True),
    Key("late", OF_ONE, BOOLEAN, is_column=True),
    Key("coin", OF_ONE, INTEGER),
    Key("labels", OF_PARTS, LIST),  # a store joins them to a ``label``
    Key("confidences", OF_PARTS, LIST),
    Key("routes", OF_PARTS, LIST),
    Key("bought", OF_PARTS, OBJECT),
    Key("rounds", OF_PARTS, INTEGER),
    Key("why", OF_PARTS, TEXT, is_kept=False),
    Key("f0", AUDIT, OBJECT),
    Key("draw", AUDIT, INTEGER),
    Key("audit_cost", AUDIT, NUMBER, COST),
    Key("readings", AUDIT, LIST, is_column=True),
    Key("evidence", AUDIT, OBJECT),
)
COPIED = tuple([key.name for key in KEYS if key.origin in (LINE, OF_ONE, OF_PARTS) and key.is_kept])  # into records
COLUMNS = tuple([key.name for key in KEYS if key.is_column])
