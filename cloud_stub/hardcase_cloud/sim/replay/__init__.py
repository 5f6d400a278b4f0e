# SPDX-License-Identifier: Apache-2.0
"""A whole fleet in virtual time: devices, network, broker, workers, store and roll-out, replayed exactly by a seed."""
