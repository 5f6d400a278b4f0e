# SPDX-License-Identifier: Apache-2.0
"""A device that nobody is near: its systemd unit, its metrics, and Home Assistant."""
