# SPDX-License-Identifier: Apache-2.0
"""f0 in training: a large model that is fitted, or a legacy system whose answers are declared."""
