# SPDX-License-Identifier: Apache-2.0
"""The export for MicroPython: the kernel as native modules and as a user C module, its wrapper, and one policy."""
