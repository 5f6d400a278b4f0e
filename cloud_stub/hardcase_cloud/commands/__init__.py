# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud``: brokers, workers, stores and roll-outs; its commands are found by the hook ``hardcase.cloud``."""

from __future__ import annotations

__all__ = ["COMMANDS", "EXAMPLES", "FIRST", "HELP", "TERMS"]

HELP = "Answer forwarded cases and keep decisions: start a broker, a worker or a store, or set up your own broker."
EXAMPLES = """\
hardcase cloud up --hpc build/hpc.onnx              # on this machine, to try it
hardcase cloud worker --hpc build/hpc.onnx --broker mqtts://broker.example:8883 --ca ca.pem
hardcase cloud store --store sqlite:decisions.sqlite --broker mqtts://broker.example:8884 --ca ca.pem
hardcase cloud offer model.hcb --metadata fleet --device pump-7 --broker mqtts://broker.example:8884 --ca ca.pem
hardcase cloud acl --broker mosquitto --devices devices.txt --out /etc/mosquitto/hardcase   # for a broker of yours"""
TERMS = "broker: the MQTT server between devices and workers; worker: a process that runs f0, the large model"
COMMANDS = "cloud"
FIRST = (
    "up", "worker", "store", "label", "rollout", "dashboard", "enrol", "acl", "offer", "check-broker", "retrain",
    "audits",
)  # fmt: skip
