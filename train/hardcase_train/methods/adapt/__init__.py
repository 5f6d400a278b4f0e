# SPDX-License-Identifier: Apache-2.0
"""Adaptive approximation: gates and low-cost models that approximate f0 (Nan and Saligrama 2017)."""
