# SPDX-License-Identifier: Apache-2.0
"""hardcase in the cloud: workers that answer requests, a store, roll-outs, a demo's broker, simulated fleets.

The names below are imported when they are first used, so that a worker loads no store and a replay no broker.

    from hardcase_cloud import read_scenario, replay

    report = replay(read_scenario("examples/fleet/small.toml"), seed=7)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answer.onnx_model import Hpc
    from .answer.service import Service
    from .answer.worker import Worker
    from .broker.embedded import EmbeddedBroker
    from .keep.records.database import Database
    from .keep.records.keeper import Keeper
    from .rollout.updates.campaign import Campaign
    from .rollout.waves.machine import Rollout
    from .sim.fleet.scenario import read_scenario
    from .sim.replay.world import replay

__all__ = [
    "Campaign", "Database", "EmbeddedBroker", "Hpc", "Keeper", "Rollout", "Service", "Worker", "read_scenario",
    "replay",
]  # fmt: skip

__version__ = "0.1.0"

_HOMES = {
    "Campaign": "rollout.updates.campaign", "Database": "keep.records.database", "EmbeddedBroker": "broker.embedded",
    "Hpc": "answer.onnx_model", "Keeper": "keep.records.keeper", "Rollout": "rollout.waves.machine",
    "Service": "answer.service", "Worker": "answer.worker", "read_scenario": "sim.fleet.scenario",
    "replay": "sim.replay.world",
}  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a name of ``__all__`` from its module and keep it here (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
