# SPDX-License-Identifier: Apache-2.0
"""Measuring: what a program does on labelled rows, by the device's evaluator, in figures that every report shares."""
