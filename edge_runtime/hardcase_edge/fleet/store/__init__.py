# SPDX-License-Identifier: Apache-2.0
"""The store: two slots for bundles, a trial before a bundle stays, and the metadata that says which bundle may come."""
