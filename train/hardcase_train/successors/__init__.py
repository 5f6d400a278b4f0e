# SPDX-License-Identifier: Apache-2.0
"""Which state follows which: policies learned on graphs of states, and what options gain for rows answered alike."""
