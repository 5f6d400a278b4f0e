# SPDX-License-Identifier: Apache-2.0
"""The exporter of hardcase: from a build folder to what devices, microcontrollers and other runtimes run.

Rooms, from the lowest floor up; a room imports only rooms below it:

- ``zig``: the compiler for other machines
- ``drafts``: the Pareto front of a training run, and labelled rows with f0's answers
- ``sources``: models trained elsewhere, read into plain numbers
- ``to_c``, ``to_js``: a bundle as C99 for microcontrollers, and as an npm package
- ``publish``, ``summary``: sign and write a bundle; describe one
- ``integers``: quantisation of a draft, calibration of its thresholds, parity with the draft, golden cases
- ``importing``: a source model as columns and scorers of a program, compared with its source
- ``picking``: the choice of a point by loss, budget, or risk (Learn-then-Test on held-out rows)
- ``scorers``: parts of a program as models of their own, and the comparison of their scores
- ``bundle``: from a build folder to a bundle
- ``to_onnx``, ``to_tflite``: files of other runtimes; ``runtimes`` makes and compares all files of a program
- ``foreign_model``: from a source model to a bundle

The names in ``__all__`` are the entry points. Each is imported when it is first used, so that ``import
hardcase_export`` alone loads nothing heavy. None of them is also the name of a module: an import of that module would
replace the function.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bundle import export_bundle
    from .foreign_model import import_model
    from .picking.pick import pick
    from .runtimes import onnx_models, tflite_models
    from .summary import describe
    from .to_c.folder import write_c

__all__ = ["describe", "export_bundle", "import_model", "onnx_models", "pick", "tflite_models", "write_c"]

HOMES = {
    "describe": "summary",
    "export_bundle": "bundle",
    "import_model": "foreign_model",
    "onnx_models": "runtimes",
    "pick": "picking.pick",
    "tflite_models": "runtimes",
    "write_c": "to_c.folder",
}  # the module of each entry point


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
