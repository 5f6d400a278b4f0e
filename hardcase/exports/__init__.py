# SPDX-License-Identifier: Apache-2.0
"""Outputs of ``hardcase export`` other than bundles, and the labelled rows that it reads."""
