# SPDX-License-Identifier: Apache-2.0
"""TFLite export: exact and int8 models of a program's parts, and checks of a user's own model."""
