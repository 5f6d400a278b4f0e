# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads of workers, stores and roll-outs, in its text format."""
