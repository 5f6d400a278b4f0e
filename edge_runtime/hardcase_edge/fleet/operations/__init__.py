# SPDX-License-Identifier: Apache-2.0
"""A device that nobody is near: systemd and its watchdog, metrics, Home Assistant, and what is wrong with a machine."""
