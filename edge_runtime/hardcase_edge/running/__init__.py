# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: what a process runs one after the other, one of these runs, its connection, and its signals."""
