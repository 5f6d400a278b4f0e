# SPDX-License-Identifier: Apache-2.0
"""The link to the cloud: requests and replies as bytes, and the MQTT connection that carries them."""
