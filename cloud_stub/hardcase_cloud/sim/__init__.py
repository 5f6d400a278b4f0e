# SPDX-License-Identifier: Apache-2.0
"""Fleets that are simulated: over a real broker, in virtual time, and behind a poor link."""
