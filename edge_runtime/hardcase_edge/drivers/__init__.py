# SPDX-License-Identifier: Apache-2.0
"""The drivers: what Linux itself can read, by device and channel, and measurement lists of other programs (SenML)."""
