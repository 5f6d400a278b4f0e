# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: one run after another, their connection and signals, and what systemd and a log hear of them.

A companion (``fleet``, ``more``) is imported where a setting asks for it, so that a plain run needs none of them.
"""
