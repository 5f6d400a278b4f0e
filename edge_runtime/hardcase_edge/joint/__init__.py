# SPDX-License-Identifier: Apache-2.0
"""Joint programs: items of several parts, each decided by a part program, whose labels a chain decides together."""
