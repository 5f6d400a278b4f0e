"""hardcase in the cloud: trains gates, low-cost models and the honest baselines, and compiles them to programs."""

__version__ = "0.1.0"
