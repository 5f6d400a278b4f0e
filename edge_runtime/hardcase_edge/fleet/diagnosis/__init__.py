# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a machine or with a run on it, in the order in which to mend it."""
