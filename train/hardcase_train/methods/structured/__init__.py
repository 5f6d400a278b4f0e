# SPDX-License-Identifier: Apache-2.0
"""Which parts of an item get costly features (Bolukbasi, Chang, Wang and Saligrama, 2017), and its peers."""
