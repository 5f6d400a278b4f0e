# SPDX-License-Identifier: Apache-2.0
"""Policies that route: which sensor is read next depends on what was read."""
