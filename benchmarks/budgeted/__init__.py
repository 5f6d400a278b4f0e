# SPDX-License-Identifier: Apache-2.0
"""A benchmark of decisions within a budget: any method of two functions, ``fit(problem)`` and ``decide(session)``.

A problem has training rows, sensors with costs and wishes (a mean or a hard budget). A session sells the readings of
test rows. The harness keeps these rows and counts what is bought, so that no method states its own costs. Rows are
fixed by their numbers.
"""
