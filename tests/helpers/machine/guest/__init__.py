# SPDX-License-Identifier: Apache-2.0
"""Files that a flashed card carries besides the runtime; they run in the emulated machine alone."""
