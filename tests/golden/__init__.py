# SPDX-License-Identifier: Apache-2.0
"""Committed bytes of format 1 and the script that makes them."""
