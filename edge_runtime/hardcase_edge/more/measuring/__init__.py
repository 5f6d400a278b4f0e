# SPDX-License-Identifier: Apache-2.0
"""Measuring sensors: how long their reads take and what they draw, and costs for hardcase.toml that follow from it."""
