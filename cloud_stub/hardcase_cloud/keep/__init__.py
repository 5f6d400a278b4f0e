# SPDX-License-Identifier: Apache-2.0
"""The store of a fleet: records, devices, roll-outs and labels, with a page and figures of them."""
