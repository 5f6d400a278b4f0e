# SPDX-License-Identifier: Apache-2.0
"""Items of several parts in the command: build, report and export of joint bundles."""
