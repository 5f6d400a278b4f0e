# SPDX-License-Identifier: Apache-2.0
"""Joint bundles: trained chains with a policy of purchases, in integers, with golden items of several parts."""
