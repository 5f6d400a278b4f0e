# SPDX-License-Identifier: Apache-2.0
"""A page on which one touches a policy: the kernel, a bundle and real cases in one file that loads nothing."""
