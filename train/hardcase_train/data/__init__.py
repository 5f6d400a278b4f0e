# SPDX-License-Identifier: Apache-2.0
"""A table or arrays become a problem: rows as plain arrays, sensors with costs, and the answers of f0."""
