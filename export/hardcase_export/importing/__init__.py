# SPDX-License-Identifier: Apache-2.0
"""From a source model to a program: thresholds become ranks, leaves become integers, and labels are compared."""
