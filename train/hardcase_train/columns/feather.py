# SPDX-License-Identifier: Apache-2.0
"""Feather files: how many bytes their batches unpack to, read from the batches' own headers, and the columns in them.

A batch is a message of Arrow's IPC format: a header in FlatBuffers, and a body of buffers, each of which begins with
its unpacked length if it is packed. Arrow unpacks whatever a buffer says, so it is asked before.
"""

from __future__ import annotations

import struct
from typing import Any

from hardcase_edge.more.batch.tables import NUMBER_BYTES, check_size

from .kinds import OTHER, kind_of_type, left_out

MAGIC = b"ARROW1\0\0"  # in front of the messages; behind them is an index of them, which is not needed
HEADER, BATCH_OF_DICTIONARY = 2, 1  # fields of the tables Message and DictionaryBatch
LENGTH, NODES, BUFFERS, COMPRESSION = range(4)  # fields of the table RecordBatch


def read_feather(what: object, data: bytes) -> Any:
    """The arrow table in these bytes; columns that nothing reads are empty.

    Raises
    ------
    InputError
        It would take more memory than the limit.
    pyarrow.ArrowException, ValueError
        The file is damaged.
    """
    import pyarrow as pa

    if not data.startswith(MAGIC):
        raise ValueError("it does not begin as a Feather file of version 2 does")
    messages = pa.py_buffer(data)[len(MAGIC) :]
    needed = 0
    for message in pa.ipc.MessageReader.open_stream(messages):
        needed += _needed(message)
        check_size(what, needed)
    with pa.ipc.open_stream(messages) as file:
        schema = file.schema
    wanted = [k for k, field in enumerate(schema) if kind_of_type(field.type) != OTHER]
    with pa.ipc.open_stream(messages, options=pa.ipc.IpcReadOptions(included_fields=wanted)) as file:
        table = file.read_all()
    table.validate(full=True)  # offsets and indices are in range, which reading alone does not check
    return table if len(wanted) == len(schema) else left_out(table, schema)


def _needed(message: Any) -> int:
    """Bytes of a message's body when unpacked, or of its values as float64 if that is more."""
    if message.type not in ("record batch", "dictionary"):
        return 0
    header = bytes(message.metadata)
    table = _table(header, _field(header, _table(header, 0), HEADER))
    if message.type == "dictionary":
        table = _table(header, _field(header, table, BATCH_OF_DICTIONARY))
    length = _long(header, _field(header, table, LENGTH)) if _has(header, table, LENGTH) else 0
    values = length * _count(header, table, NODES) * NUMBER_BYTES
    if not _has(header, table, COMPRESSION):
        return max(values, int(message.body.size))
    at = _vector(header, table, BUFFERS)
    unpacked = 0
    for k in range(_count(header, table, BUFFERS)):
        offset, size = struct.unpack_from("<qq", header, at + 16 * k)
        if size >= 8:
            claim = _long(message.body, offset)  # -1: this buffer is not packed
            unpacked += size if claim < 0 else claim
    return max(values, unpacked)


# ---------------------------------------------------------------- FlatBuffers; struct.error is a fault of the file


def _long(data: Any, at: int) -> int:
    return int(struct.unpack_from("<q", data, at)[0])


def _table(data: bytes, at: int) -> int:
    """The place of the table to which the offset at a place leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _slot(data: bytes, table: int, field: int) -> int:
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    return int(struct.unpack_from("<H", data, vtable + 4 + 2 * field)[0]) if 6 + 2 * field <= size else 0


def _has(data: bytes, table: int, field: int) -> bool:
    return _slot(data, table, field) != 0


def _field(data: bytes, table: int, field: int) -> int:
    """The place of a field's value."""
    if not _has(data, table, field):
        raise ValueError("a batch of it lacks a part of its header")
    return table + _slot(data, table, field)


def _vector(data: bytes, table: int, field: int) -> int:
    """The place of a vector's first element."""
    return _table(data, _field(data, table, field)) + 4


def _count(data: bytes, table: int, field: int) -> int:
    return int(struct.unpack_from("<I", data, _vector(data, table, field) - 4)[0]) if _has(data, table, field) else 0
