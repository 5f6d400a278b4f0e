# SPDX-License-Identifier: Apache-2.0
"""Running budgets: a price of cost that moves so that spending stays on plan, without a clock and without I/O."""
