# SPDX-License-Identifier: Apache-2.0
"""What ``hardcase flash`` has left on a card: checked, put down at the first boot, tried and reported."""
