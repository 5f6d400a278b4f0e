# SPDX-License-Identifier: Apache-2.0
"""What devices get: bundles over the air, roll-outs in waves, and certificates."""
