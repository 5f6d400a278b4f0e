# SPDX-License-Identifier: Apache-2.0
"""Packets of MQTT and frames of WebSockets in bytes of a network that is not trusted, for devices and for the cloud."""
