# SPDX-License-Identifier: Apache-2.0
"""Bundles offered to devices over the air, and their chunks served on request."""
