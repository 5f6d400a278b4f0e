# SPDX-License-Identifier: Apache-2.0
"""A fleet's keys: a repository of signed metadata (TUF 1.0) that says which bundles its devices take."""
