# SPDX-License-Identifier: Apache-2.0
"""The C kernel, the image of a program that it runs, and the choice between it and pure Python."""
