# SPDX-License-Identifier: Apache-2.0
"""Models of items that have several parts: linear chains, with features bought part by part.

An item is an array (parts, features); a state says for each part which level of features it has.
"""
