# SPDX-License-Identifier: Apache-2.0
"""Companions of a device in a fleet: updates, identity, records for the cloud, and machines that run alone."""
