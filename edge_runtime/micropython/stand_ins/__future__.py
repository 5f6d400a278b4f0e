# SPDX-License-Identifier: Apache-2.0
"""For MicroPython, which never evaluates annotations."""

annotations = None
