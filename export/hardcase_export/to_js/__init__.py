# SPDX-License-Identifier: Apache-2.0
"""The export for JavaScript: the kernel as WebAssembly, a wrapper with types, and one policy, as an npm package."""
