# SPDX-License-Identifier: Apache-2.0
"""The flags of ``hardcase-edge run``, which are the keys of a ``run.toml``, too."""

from __future__ import annotations

import argparse

from ..device.lines import FORMATS
from ..drift import flags as drift
from ..outbox import flags as outbox
from ..servo import flags as servo

__all__ = ["run_arguments", "sensor_arguments"]


def run_arguments(run: argparse.ArgumentParser) -> None:
    """Declare the flags of ``run``, but the bundle and ``--trust``, which other verbs have, too."""
    run.add_argument(
        "--config", metavar="FILE", help="a run.toml, whose keys are these flags; a flag overrides its key"
    )
    store = run.add_argument_group("the store")
    store.add_argument("--store", metavar="FOLDER", help="run the store's good bundle, or the one on trial")
    store.add_argument(
        "--trial-decisions", type=int, default=10, help="number after which a trial has passed (default %(default)s)"
    )
    store.add_argument(
        "--trial-s",
        type=float,
        help="seconds after which a trial has failed (default: 3600, or three times the intervals it needs)",
    )
    store.add_argument(
        "--trial-audits", type=int, default=30, metavar="N",
        help="answers of f0 to local decisions that a trial waits for, 0 for none (default %(default)s)",
    )  # fmt: skip
    store.add_argument(
        "--trial-audit-share", default="50%", metavar="SHARE",
        help="share of the local decisions about which f0 is asked until then (default 50%%)",
    )  # fmt: skip
    store.add_argument(
        "--metered", metavar="HH:MM-HH:MM", help="hours of the day in which no update is fetched (default: none)"
    )
    link = run.add_argument_group("the cloud")
    link.add_argument(
        "--broker", metavar="URL", help="mqtt://, mqtts://, ws:// or wss:// and host:port (default: alone)"
    )
    link.add_argument("--ca", help="PEM file of the authorities that may sign the broker's certificate")
    link.add_argument("--cert", help="PEM file of this device's certificate")
    link.add_argument("--key", help="PEM file of the certificate's private key")
    link.add_argument(
        "--identity", metavar="FOLDER", help="the device's own certificate, or a claim (default: identity of the store)"
    )
    link.add_argument("--device-id", metavar="ID", help="this device's name in topics (default: host and machine)")
    link.add_argument(
        "--deadline-ms", type=int, default=2_000, help="how long to wait for the cloud (default %(default)s)"
    )
    outbox.add_arguments(run)
    servo.add_arguments(run)
    item = run.add_argument_group("the decisions")
    sensor_arguments(item)
    item.add_argument(
        "--strict-range",
        action="store_true",
        help="a sensor with a reading outside the range that training saw has failed",
    )
    item.add_argument("--budget", type=float, help="highest cost of a decision, in the bundle's unit")
    item.add_argument("--interval", type=float, default=0.0, help="seconds between decisions (default: no pause)")
    item.add_argument(
        "--record", choices=FORMATS, default="json", help="format of a decision's line (default %(default)s)"
    )
    item.add_argument("--count", type=int, help="number of decisions after which to end")
    item.add_argument(
        "--item-size", type=int, default=1, help="size of the items, for costs that depend on it (default %(default)s)"
    )
    item.add_argument(
        "--coin-seed", type=int, metavar="N", help="of a bundle that mixes two policies: makes its draws repeatable"
    )
    drift.add_arguments(run)
    _operations_arguments(run)


def sensor_arguments(item: argparse._ActionsContainer) -> None:
    """Declare the flags that say where readings come from."""
    item.add_argument(
        "--sensors",
        metavar="SPEC",
        action="append",
        help="[NAME=]replay:FILE.csv, senml:FILE, MODULE:FUNCTION, KIND:DEVICE (iio, hwmon, w1, thermal, alsa) or "
        "NAME=none; repeatable",
    )
    item.add_argument("--items", metavar="MODULE:FUNCTION", help="gives items with a size and a budget of their own")
    item.add_argument(
        "--sensor-timeout-ms", type=int, default=1_000, help="when a read counts as failed (default %(default)s)"
    )
    item.add_argument(
        "--isolate",
        action="store_true",
        help="run each sensor's MODULE:FUNCTION in a process of its own, which is killed at the time limit",
    )


def _operations_arguments(run: argparse.ArgumentParser) -> None:
    watch = run.add_argument_group("who watches")
    watch.add_argument("--metrics", metavar="IP:PORT", help="serve Prometheus metrics there, such as 127.0.0.1:9101")
    watch.add_argument("--metrics-public", action="store_true", help="allow an address that other machines can reach")
    watch.add_argument("--metrics-file", metavar="FILE.prom", help="write them for node_exporter every 15 s")
    prefix = {"metavar": "PREFIX", "nargs": "?", "const": "homeassistant"}
    watch.add_argument("--home-assistant", **prefix, help="show the device to Home Assistant")  # type: ignore[arg-type]
    watch.add_argument("--home-assistant-remove", **prefix, help="remove it there")  # type: ignore[arg-type]
