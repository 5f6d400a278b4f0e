# SPDX-License-Identifier: Apache-2.0
"""Streams: decisions one after the other, and the inner sensor ``memory``, which says what came before."""
