"""hardcase_export: from what training leaves to what devices and the cloud run.

``write`` makes bundles (by ``front``, ``tables``, ``quantise``, ``align``, ``parity``, ``goldens``), ``onnx_hpc`` the
HPC's file (by ``convert``), ``rows`` runs programs as a device does, ``describe`` says what a bundle is.
"""
