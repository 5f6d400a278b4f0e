# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command ``hardcase``, one module each."""
