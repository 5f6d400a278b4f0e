# SPDX-License-Identifier: Apache-2.0
"""hardcase in the cloud: workers that answer requests, a broker for demonstrations, simulated fleets."""
