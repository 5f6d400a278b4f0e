# SPDX-License-Identifier: Apache-2.0
"""NATS as the engine behind devices that speak MQTT 3.1.1 to it: workers take requests from a JetStream stream."""
