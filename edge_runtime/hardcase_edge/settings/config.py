# SPDX-License-Identifier: Apache-2.0
"""The settings of a run, typed: what ``run.toml`` says, with the command line over it.

A field's name is the key in ``run.toml``, and its flag has a dash for each underscore; type and default hold for both.
``table.py`` has the rest of each key: the help, the words that it takes, and the check of its value.
"""

from __future__ import annotations

import os
from typing import Any

from ..base.record import record


@record(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Every setting of ``hardcase-edge run``. Units are those of the help; None: not given."""

    bundle: str | None = None
    trust: str | None = None
    # the store
    store: str | None = None
    trial_decisions: int = 10
    trial_s: float | None = None
    trial_audits: int = 30
    trial_audit_share: str = "50%"
    metered: str | None = None
    # the cloud
    broker: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    identity: str | None = None
    device_id: str | None = None
    deadline_ms: int = 2_000
    # decisions for the cloud
    publish: str | None = None
    audit: str | None = None
    outbox: str | None = None
    outbox_folder: str | None = None
    outbox_drop: str = "oldest-first"
    outbox_days: float = 30.0
    outbox_rate: float = 100.0
    # running budgets
    budget_per_hour: float | None = None
    battery: float | None = None
    until: str | None = None
    max_forward_rate: str | None = None
    budget_file: str | None = None
    # the decisions
    sensors: tuple[str, ...] = ()
    items: str | None = None
    sensor_timeout_ms: int = 1_000
    isolate: bool = False
    strict_range: bool = False
    budget: float | None = None
    interval: float = 0.0
    record: str = "json"
    count: int | None = None
    item_size: int = 1
    coin_seed: int | None = None
    # drift
    drift: str | None = None
    on_broken: str | None = None
    # who watches
    metrics: str | None = None
    metrics_public: bool = False
    metrics_file: str | None = None
    sink: tuple[str, ...] = ()
    home_assistant: str | None = None
    home_assistant_remove: str | None = None


def changed(config: RunConfig, **values: Any) -> RunConfig:
    """A copy of the settings with these values."""
    return RunConfig(**{key: getattr(config, key) for key in RunConfig.__annotations__} | values)


def identity_folder(config: RunConfig) -> str | None:
    """The identity folder of a run; None without one.

    It is the one that is named, or that of the store, unless a certificate is named.
    """
    own = None if config.store is None or config.cert is not None else f"{config.store}/identity"
    return config.identity if config.identity is not None or own is None or not os.path.isdir(own) else own
