# SPDX-License-Identifier: Apache-2.0
"""A gate before models and APIs that are paid by the call: the log of their answers, its file, and timed calls."""
