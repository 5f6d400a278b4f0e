# SPDX-License-Identifier: Apache-2.0
"""Prepares cards, images and hosts for a device's first boot: kernels for other processors, the archive, the hooks."""
