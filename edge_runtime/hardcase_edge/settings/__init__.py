# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: its flags, and the file in which each of them is a key."""
