# SPDX-License-Identifier: Apache-2.0
"""C99 export: a folder with the kernel, the policy as tables or code, golden cases, a Makefile and board files."""
