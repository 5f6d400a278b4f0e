# SPDX-License-Identifier: Apache-2.0
"""Bundles over the air: offers, chunks and what a device does with them, above the store and the link."""
