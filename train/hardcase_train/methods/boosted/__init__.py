# SPDX-License-Identifier: Apache-2.0
"""Boosted trees that do not weigh costs as they grow: stage-wise regression, and AdaBoost with resampled trees."""
