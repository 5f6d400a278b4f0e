# SPDX-License-Identifier: Apache-2.0
"""An emulated machine that boots a flashed card, and whose power is cut."""
