# SPDX-License-Identifier: Apache-2.0
"""Tasks: what is predicted from a table, from which rows and sensors, and f0, which answers it in the cloud."""
