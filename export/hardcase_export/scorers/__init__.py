# SPDX-License-Identifier: Apache-2.0
"""Parts of a program that other runtimes can run as models of their own, and the comparison of their scores."""
