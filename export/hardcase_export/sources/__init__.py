# SPDX-License-Identifier: Apache-2.0
"""Readers of models trained elsewhere: each gives a ``Source`` of plain numbers, all of them checked."""
