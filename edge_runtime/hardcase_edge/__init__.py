"""hardcase on the device: decide locally, forward only the hard cases. Standard library only; paho for MQTT."""

__version__ = "0.1.0"
