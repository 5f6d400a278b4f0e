# SPDX-License-Identifier: Apache-2.0
"""Linear models and polynomials over codes that a device computes exactly."""
