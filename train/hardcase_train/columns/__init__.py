# SPDX-License-Identifier: Apache-2.0
"""Columns as people write them: files of every kind, texts, booleans and dates become columns of numbers."""
