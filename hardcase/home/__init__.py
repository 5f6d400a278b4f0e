# SPDX-License-Identifier: Apache-2.0
"""A table from the history of a home: the recorder's database of Home Assistant, read as it is."""
