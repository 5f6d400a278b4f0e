"""The embedded MQTT broker, for demonstrations and tests on loopback."""
