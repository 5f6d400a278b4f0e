# SPDX-License-Identifier: Apache-2.0
"""A link that loses, delays and cuts packets, in user space, between a simulated fleet and its broker."""
