# SPDX-License-Identifier: Apache-2.0
"""A small MQTT client for many messages or many connections: packets as bytes, and a socket without a thread."""
