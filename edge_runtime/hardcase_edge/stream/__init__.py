# SPDX-License-Identifier: Apache-2.0
"""Streams: decisions one after the other, and the inner sensors ``memory``, of what came before, and ``coin``."""
