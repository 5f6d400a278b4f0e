# SPDX-License-Identifier: Apache-2.0
"""Release files: what a device runs in one archive, and how it lies unpacked; above bundles and below the store."""
