# SPDX-License-Identifier: Apache-2.0
"""The sensors: readings from recorded files, devices that Linux knows, and the user's own functions."""
