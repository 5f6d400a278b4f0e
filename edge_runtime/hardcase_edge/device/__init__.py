# SPDX-License-Identifier: Apache-2.0
"""The device: the loop that makes decisions, and the report on what a machine has installed."""
