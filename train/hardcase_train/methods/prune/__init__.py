# SPDX-License-Identifier: Apache-2.0
"""Random forests pruned for sensor costs (Nan, Wang and Saligrama 2016)."""
