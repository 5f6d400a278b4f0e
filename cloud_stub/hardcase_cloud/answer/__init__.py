# SPDX-License-Identifier: Apache-2.0
"""The answering side of the cloud: workers take requests from a broker and reply with the HPC's answers."""
