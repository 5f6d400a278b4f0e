# SPDX-License-Identifier: Apache-2.0
"""Companions of a device's decisions: budgets that run, drift, audits; and whole tables and measurements of bundles."""
