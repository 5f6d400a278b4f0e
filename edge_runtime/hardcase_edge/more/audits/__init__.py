# SPDX-License-Identifier: Apache-2.0
"""Audits: local decisions that are checked, with the readings that a request would carry."""
