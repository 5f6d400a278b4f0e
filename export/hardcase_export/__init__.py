"""hardcase_export: from what training leaves to what devices and the cloud run.

``write`` makes bundles (by ``front``, ``integers``, ``tables``, ``quantise``, ``align``, ``parity``, ``goldens``),
``promised`` picks what can be promised something (by ``promise``, on the rows of ``held_out``), ``onnx_hpc`` makes the
HPC's file (by ``convert``), ``models`` files of other runtimes (by ``parts``, ``splits``, ``onnx_scorer``,
``tflite_scorer``, ``tflite_int8``, ``replay``), ``own_process`` runs a user's own model (by ``own_model``), ``rows``
runs programs as a device does, ``describe`` says what a bundle is. ``bring`` makes bundles of models that were trained
elsewhere (by a reader such as ``from_onnx``, ``lay``, ``leaves``, ``match``).
"""
