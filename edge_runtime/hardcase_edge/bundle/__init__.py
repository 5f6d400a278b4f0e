# SPDX-License-Identifier: Apache-2.0
"""The bundle: a program and all it needs in one file, used only after every check has passed."""
