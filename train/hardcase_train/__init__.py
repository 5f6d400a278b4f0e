"""hardcase in the cloud: trains gates, low-cost models and the honest baselines, and compiles them to programs."""

import os

__version__ = "0.1.0"

# OpenMP's idle threads spin by default; where other processes want the cores, scikit-learn's boosted trees then take
# 20 times as long. It is read when scikit-learn is imported, so it is said before; a user's own setting wins.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
