# SPDX-License-Identifier: Apache-2.0
"""The dashboard: one page on a fleet, fed by server-sent events, behind a token."""
