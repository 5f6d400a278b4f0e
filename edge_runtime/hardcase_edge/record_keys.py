# SPDX-License-Identifier: Apache-2.0
"""The one table of the keys that lines and records have: who says a key, what it holds, and how far it comes.

A device says a line of each decision. The outbox makes records of lines and of audits from the keys that are kept, a
store keeps a record's JSON as it came, and a store's CSV and Parquet have the keys that are columns, in the order of
this table, which is that of a line. ``tests/house/record_tables.py`` writes what keys mean into four pages of docs/.
"""

from __future__ import annotations

from .base.record import record

LINE, OF_ONE, OF_PARTS = "line", "line of a decision", "line of an item of several parts"  # LINE: of both
RECORD, AUDIT, STORE = "record", "record of an audit", "store"
TEXT, INTEGER, NUMBER, BOOLEAN, LIST, OBJECT = "text", "integer", "number", "boolean", "list", "object"
COST = "the bundle's unit of cost"


@record(frozen=True, slots=True)
class Key:
    """One key; ``origin`` is who says it, ``is_kept`` whether a record has it, ``is_column`` whether tables do.

    ``doc`` says what it means, as Markdown with links from docs/, and ``of_parts`` what it means of an item of several
    parts, where that is something else.
    """

    name: str
    origin: str
    type: str
    unit: str = ""
    is_kept: bool = True
    is_column: bool = False
    doc: str = ""
    of_parts: str = ""


_SCORED = "where the bundle [scores it](drift.md#atypical-cases): "
_KNOWN = (
    "how often all labels of such items were right on held-out items; null if a part lacked a sensor that it wanted"
)
KEYS = (
    Key("device", RECORD, TEXT, is_column=True, doc="the DEVICE of the topic"),
    Key("boot", RECORD, INTEGER, is_column=True, doc="number of the device's start, 1 to 2^53 - 1"),
    Key("sequence", RECORD, INTEGER, is_column=True,
        doc="number of the record within its boot, from 1, of decisions and audits together"),
    Key("kind", RECORD, TEXT, is_column=True, doc="`decision` on the topic decision, `audit` on the topic audit"),
    Key("received", STORE, NUMBER, "s", is_kept=False, is_column=True,
        doc="Unix time in seconds at which the store received it"),
    Key("time", STORE, NUMBER, "s", is_kept=False, is_column=True,
        doc="its [wall time](SPEC-wire-v1.md#5-records-decisions-audits-and-their-acknowledgement), Unix time in "
        "seconds; null if nobody knows it"),
    Key("at", RECORD, NUMBER, "s", is_column=True, doc="seconds since the boot, by a clock that only rises"),
    Key("t", RECORD, NUMBER, "s",  # a line has one, too, which is not copied
        doc="Unix time in seconds; null in a record where the device's clock shows a time that has passed for certain"),
    Key("bundle", RECORD, TEXT, is_column=True, doc="SHA-256 of the bundle that decided"),
    Key("label", OF_ONE, TEXT, is_column=True,
        doc="the class, as the training table had it; a policy that answers numbers has `value` and `interval`"),
    Key("value", OF_ONE, NUMBER, "the target's", is_column=True, doc="the number, in the target's unit"),
    Key("interval", OF_ONE, LIST, "the target's",
        doc="`[low, high]`: the truth lies between them with a probability of 90 %, as measured on calibration rows; "
        "null if nobody measured it"),
    Key("labels", OF_PARTS, LIST, doc="the label of each part; null if the item was refused"),  # a store joins them
    Key("confidence", LINE, NUMBER, is_column=True, of_parts=_KNOWN,
        doc="[how often such answers were right](devices.md#confidence), 0 to 1, or null if nobody measured it"),
    Key("confidences", OF_PARTS, LIST, doc="the same for each part, or f0's probability"),
    Key("route", LINE, TEXT, is_column=True,
        doc="`local`; `cloud`; `degraded`: the device answered, but the program wanted a reply or a sensor that it did "
        "not get",
        of_parts="`degraded` if a part is, otherwise `cloud` if the cloud answered for a part, otherwise `local`; "
        "`refused` for an item that cannot be decided"),
    Key("routes", OF_PARTS, LIST,
        doc="the route of each part; `degraded` also if it was decided here without a sensor that it wanted"),
    Key("why", OF_PARTS, TEXT, is_kept=False, doc="of a refused item, the reason"),
    Key("cost", LINE, NUMBER, COST, is_column=True, doc="what was bought and sent, in the bundle's unit",
        of_parts="what was bought and sent for all parts, in the bundle's unit"),
    Key("sensors", OF_ONE, LIST, is_kept=False, doc="names of the sensors bought, failed ones included"),
    Key("bought", OF_PARTS, OBJECT, doc="for each sensor the parts, from 0, for which it was bought"),
    Key("failed", LINE, LIST, is_column=True,
        doc="names of the sensors that the program wanted and that are dead or have failed",
        of_parts="for each sensor the parts that wanted it and could not have it"),
    Key("unpaid", LINE, LIST,
        doc="where there are any: names of the sensors that the program wanted and the budget did not allow",
        of_parts="where there are any: for each sensor the parts for which the budget did not suffice"),
    Key("rounds", OF_PARTS, INTEGER, doc="how often parts waited for the chain"),
    Key("out_of_range", LINE, LIST, is_kept=False,
        doc="names of the features whose readings lie outside the range that training saw"),
    Key("atypical", LINE, NUMBER, doc=_SCORED + "above 0, the case is unlike those of training",
        of_parts=_SCORED + "the parts, from 0, whose readings are unlike those of training"),
    Key("latency_ms", LINE, NUMBER, "ms", is_column=True, doc="from the start of the decision, or item, to its end"),
    Key("item_size", OF_ONE, INTEGER, is_column=True,
        doc="with [items](items.md#items), or by the clock: the size; null if it cannot be used"),
    Key("budget", OF_ONE, NUMBER, COST, is_column=True,
        doc="with [items](items.md#items), or by the clock: the budget; null without one"),
    Key("late", OF_ONE, BOOLEAN, is_column=True,
        doc="[by the clock](items.md#by-the-clock): whether the answer came after the budget's time"),
    Key("coin", OF_ONE, INTEGER,
        doc="of a bundle that [mixes two policies](budgets.md#a-mean-that-is-met): 1 if the draw took the dearer one, "
        "else 0"),
    Key("price", OF_ONE, NUMBER, "levels",
        doc="with a [running budget](budgets.md): the level of the bundle's prices, 0 where most is spent; null for a "
        "bundle without prices"),
    Key("f0", AUDIT, OBJECT,
        doc="of an audit about which the device has asked f0 and had a reply in time: an object of `label` or `value`, "
        "and `confidence`"),
    Key("draw", AUDIT, INTEGER, doc="of an audit: which of the local decisions of this boot it is, from 1"),
    Key("audit_cost", AUDIT, NUMBER, COST,
        doc="of an audit: what the device spent for the audit alone, on sensors and, if it asked f0, on the request"),
    Key("readings", AUDIT, LIST, is_column=True,
        doc="of an audit: what a request would carry, in the uplink's order, null for missing"),
    Key("evidence", AUDIT, OBJECT,
        doc="of an audit, where a plug-in gave it: an object of base64 by sensor, each the bytes of a PNG, JPEG or "
        "WAV, 12,288 bytes together at most"),
)  # fmt: skip
COPIED = tuple([key.name for key in KEYS if key.origin in (LINE, OF_ONE, OF_PARTS) and key.is_kept])  # into records
COLUMNS = tuple([key.name for key in KEYS if key.is_column])
