# SPDX-License-Identifier: Apache-2.0
"""The dependency parser of the English Web Treebank: which words are worth costly templates."""
