# SPDX-License-Identifier: Apache-2.0
"""Bundles over the air: offers, chunks and what a device does with them; and the start of a slot that has a release."""
