# SPDX-License-Identifier: Apache-2.0
"""Policies for streams, whose rows have an order: hold the last label, and buy anew by a plan or by need."""
