# SPDX-License-Identifier: Apache-2.0
"""The embedded MQTT broker, for demonstrations and tests on loopback, and access rules for real brokers."""
