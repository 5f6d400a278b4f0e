# SPDX-License-Identifier: Apache-2.0
"""The program, which is a policy as data: its nodes, scorers, readings, costs and bytes."""
