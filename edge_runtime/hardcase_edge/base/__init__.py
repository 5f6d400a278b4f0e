# SPDX-License-Identifier: Apache-2.0
"""What every other room builds on: records, bounded reads of files, and files written whole or not at all."""
