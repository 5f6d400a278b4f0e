# SPDX-License-Identifier: Apache-2.0
"""Sinks: where decisions go beside standard output and the broker, by packages of others."""
