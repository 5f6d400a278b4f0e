"""The cloud side of hardcase: answering workers, an MQTT broker for demonstrations, a simulated fleet."""
