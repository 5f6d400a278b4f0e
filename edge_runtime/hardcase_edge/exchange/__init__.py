# SPDX-License-Identifier: Apache-2.0
"""One request to the cloud and its reply, as an automaton without I/O and without a clock."""
