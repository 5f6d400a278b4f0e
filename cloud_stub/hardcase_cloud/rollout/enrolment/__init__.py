# SPDX-License-Identifier: Apache-2.0
"""Enrolment: a certificate authority of one's own, and the worker that exchanges claims for device certificates."""
