# SPDX-License-Identifier: Apache-2.0
"""The tables of a store, and the steps that take a store of an earlier version to this one.

Version 1 was the table ``records`` in SQLite alone. A step is a list of statements for both dialects; a step that has
been released is never changed, and a change is a step more. All steps of an upgrade are one transaction.
"""

from __future__ import annotations

from hardcase_edge.errors import InputError

from .dialects import Dialect

RECORDS = """\
CREATE TABLE records (
  device TEXT NOT NULL, boot INTEGER NOT NULL, sequence INTEGER NOT NULL, kind TEXT NOT NULL,
  received REAL NOT NULL, record TEXT NOT NULL, PRIMARY KEY (device, boot, sequence)
) WITHOUT ROWID"""  # of SQLite; as it was in version 1, which had no table of its version
POSTGRES_RECORDS = """\
CREATE TABLE records (
  device TEXT NOT NULL, boot BIGINT NOT NULL, sequence BIGINT NOT NULL, kind TEXT NOT NULL,
  received DOUBLE PRECISION NOT NULL, record TEXT NOT NULL, PRIMARY KEY (device, boot, sequence))"""
STAGE = """\
CREATE TEMP TABLE IF NOT EXISTS incoming (
  device TEXT, boot BIGINT, sequence BIGINT, kind TEXT, received DOUBLE PRECISION, record TEXT)"""

STEPS: dict[int, tuple[str, ...]] = {
    2: (
        "CREATE TABLE store_version (version BIGINT NOT NULL)",
        "INSERT INTO store_version VALUES (1)",
        "CREATE INDEX records_received ON records (received)",
        # what the records of one minute say together, by bundle
        """CREATE TABLE minutes (
             bundle TEXT NOT NULL, minute BIGINT NOT NULL, decisions BIGINT NOT NULL, forwarded BIGINT NOT NULL,
             degraded BIGINT NOT NULL, cost DOUBLE PRECISION NOT NULL, audits BIGINT NOT NULL, labelled BIGINT NOT NULL,
             agreed BIGINT NOT NULL, PRIMARY KEY (bundle, minute))""",
        """CREATE TABLE answers (
             bundle TEXT NOT NULL, hour BIGINT NOT NULL, label TEXT NOT NULL, n BIGINT NOT NULL,
             PRIMARY KEY (bundle, hour, label))""",
        # what f0 or a person says of a record
        """CREATE TABLE labels (
             device TEXT NOT NULL, boot BIGINT NOT NULL, sequence BIGINT NOT NULL, source TEXT NOT NULL,
             label TEXT NOT NULL, received DOUBLE PRECISION NOT NULL, PRIMARY KEY (device, boot, sequence, source))""",
        """CREATE TABLE devices (
             device TEXT NOT NULL PRIMARY KEY, is_online BIGINT NOT NULL, bundle TEXT NOT NULL, state TEXT NOT NULL,
             facts TEXT NOT NULL, seen DOUBLE PRECISION NOT NULL)""",
        "CREATE TABLE members (name TEXT NOT NULL, device TEXT NOT NULL, PRIMARY KEY (name, device))",
        """CREATE TABLE bundles (
             sha256 TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, bytes BIGINT NOT NULL, root BIGINT NOT NULL,
             targets BIGINT NOT NULL, manifest TEXT NOT NULL, added DOUBLE PRECISION NOT NULL)""",
        """CREATE TABLE rollouts (
             id BIGINT NOT NULL PRIMARY KEY, bundle TEXT NOT NULL, path TEXT NOT NULL, metadata TEXT NOT NULL,
             members TEXT NOT NULL, wish TEXT NOT NULL, state TEXT NOT NULL, machine TEXT NOT NULL,
             began DOUBLE PRECISION NOT NULL, served DOUBLE PRECISION NOT NULL)""",
        """CREATE TABLE instances (
             rollout BIGINT NOT NULL, device TEXT NOT NULL, state TEXT NOT NULL, since DOUBLE PRECISION NOT NULL,
             reason TEXT NOT NULL, is_open BIGINT NOT NULL, PRIMARY KEY (rollout, device))""",
        "CREATE UNIQUE INDEX instances_open ON instances (device) WHERE is_open = 1",
    ),
    3: (
        # how the promise of a bundle stands by its audits: all of them (label ''), and by the device's answer
        """CREATE TABLE standings (
             bundle TEXT NOT NULL, label TEXT NOT NULL, n BIGINT NOT NULL, agreed BIGINT NOT NULL,
             promised DOUBLE PRECISION NOT NULL, delta DOUBLE PRECISION NOT NULL, test TEXT NOT NULL,
             since DOUBLE PRECISION NOT NULL, PRIMARY KEY (bundle, label))""",
    ),
    4: (
        # each step of a roll-out asks for what f0 has answered since the last one
        "CREATE INDEX labels_since ON labels (source, received, device, boot, sequence)",
    ),
    5: (
        # the last facts of starts that have told the seed of their audits; '' once records of theirs were removed
        """CREATE TABLE starts (
             device TEXT NOT NULL, boot BIGINT NOT NULL, told DOUBLE PRECISION NOT NULL, facts TEXT NOT NULL,
             PRIMARY KEY (device, boot))""",
    ),
    6: (
        # the level of a bundle's prices at which it promises; none of a bundle without prices
        "ALTER TABLE standings ADD COLUMN shipped BIGINT",
    ),
    7: (
        # made when first needed, such as the key by which rows are dealt to the parts of a training; never exported
        "CREATE TABLE secrets (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    ),
}  # fmt: skip
VERSION = max(STEPS)


def migrate(dialect: Dialect) -> None:
    """Make the tables of a new store, or take an older one to ``VERSION``; within ``run``.

    Raises
    ------
    InputError
        The store is of a newer version, or it is not a store.
    """
    if not dialect.is_sqlite:
        dialect.execute("SELECT pg_advisory_xact_lock(1751344242)")  # two that start at once take turns
    version = _version(dialect)
    if version > VERSION:
        raise InputError(
            f"the store {dialect.name} has version {version}, and this hardcase-cloud reads 1 to {VERSION}; update it"
        )
    if version == 0:
        dialect.execute(RECORDS if dialect.is_sqlite else _collated(POSTGRES_RECORDS))
    for step in range(max(version, 1) + 1, VERSION + 1):
        for statement in STEPS[step]:
            dialect.execute(statement if dialect.is_sqlite else _collated(statement))
        dialect.execute("UPDATE store_version SET version = ?", (step,))


def _version(dialect: Dialect) -> int:
    """The version of a store, 0 of one that has no table yet."""
    tables = _tables(dialect)
    if "store_version" in tables:
        return int(dialect.execute("SELECT version FROM store_version")[0][0])
    if not tables:
        return 0
    if dialect.is_sqlite and dialect.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL") == [(RECORDS,)]:
        return 1
    raise InputError(f"{dialect.name} is not a store of decisions; name another file or an empty database")


def _tables(dialect: Dialect) -> set[str]:
    if dialect.is_sqlite:
        rows = dialect.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    else:
        rows = dialect.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
    return {row[0] for row in rows}


def _collated(statement: str) -> str:
    """Texts of PostgreSQL in the order of their bytes, as those of SQLite are."""
    return statement.replace(" TEXT ", ' TEXT COLLATE "C" ')
