"""The way to the cloud: requests and replies in bytes, and MQTT."""
