# SPDX-License-Identifier: Apache-2.0
"""Windows that are read in the order of time, where a decision may fall after any segment, and methods that stop."""
