# SPDX-License-Identifier: Apache-2.0
"""The sensors: readings from recorded files, thermal zones and the user's own functions."""
