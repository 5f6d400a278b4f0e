# SPDX-License-Identifier: Apache-2.0
"""Decisions and audits on their way to the cloud: made, kept on the disk, sent, and removed once they are stored."""
