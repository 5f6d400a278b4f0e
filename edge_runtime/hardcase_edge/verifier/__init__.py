# SPDX-License-Identifier: Apache-2.0
"""The verifier: proves, before a program runs, that it ends, reads only what it has, and what it costs at worst."""
