# SPDX-License-Identifier: Apache-2.0
"""Programs evaluated on many rows at once with numpy, for training and export; a device imports none of it."""
