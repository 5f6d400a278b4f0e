# SPDX-License-Identifier: Apache-2.0
"""What every other room builds on: records, bounded reads, files written whole or not at all, tests by betting."""
