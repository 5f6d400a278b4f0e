# SPDX-License-Identifier: Apache-2.0
"""Reports: pages in HTML and pictures in SVG, self-contained, without scripts, safe with names from outside."""
