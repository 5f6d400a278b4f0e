# SPDX-License-Identifier: Apache-2.0
"""Quantisation: a draft's floats become integers, and parity on rows shows that its decisions stay the same."""
