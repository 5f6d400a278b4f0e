# SPDX-License-Identifier: Apache-2.0
"""For MicroPython, which has no typing."""

TYPE_CHECKING = False
Any = None
