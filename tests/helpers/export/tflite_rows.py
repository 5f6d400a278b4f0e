# SPDX-License-Identifier: Apache-2.0
"""Runs TFLite files in tflite-runtime, as a process of its own: that runtime needs numpy 1.

    PYTHONPATH=build/tflite-runtime python tests/helpers/export/tflite_rows.py FOLDER

For each ``*.tflite`` of the folder the inputs lie beside it as ``.npz``, by name; what it says of each row becomes a
``.npy``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def main() -> None:
    """Run every file."""
    from tflite_runtime.interpreter import Interpreter

    for path in sorted(Path(sys.argv[1]).glob("*.tflite")):
        model = Interpreter(model_content=path.read_bytes(), num_threads=1)
        model.allocate_tensors()
        details, out = model.get_input_details(), model.get_output_details()[0]["index"]
        with np.load(path.with_suffix(".npz")) as feeds:
            rows = {d["index"]: feeds[d["name"]] for d in details}
        found = []
        for k in range(len(next(iter(rows.values())))):
            for index, values in rows.items():
                model.set_tensor(index, values[k : k + 1])
            model.invoke()
            found.append(model.get_tensor(out)[0])
        np.save(path.with_suffix(".npy"), np.array(found))


if __name__ == "__main__":
    main()
