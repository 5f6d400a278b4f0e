# SPDX-License-Identifier: Apache-2.0
"""Source models of skops files, built only after every type name in the file was found on an allow list.

A skops file is a zip of a description and arrays. The allow list of skops is longer than what is needed here, so
``read_skops`` reads the description as plain JSON and compares each type, and each way of building one, with the list
below; only then may skops build the estimator. Nothing is unpickled, and the estimator never predicts: its compiled
parts would trust whatever numbers the file put into them.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hardcase_edge.errors import InputError, one_line
from hardcase_edge.fleet.release.archive import UNREADABLE_ZIP

from .from_estimator import from_estimator
from .from_sklearn import KNOWN
from .preprocessing import SCALERS
from .source import MAX_MODEL_BYTES, Source

MAX_SCHEMA_BYTES = 64 * 1024**2
MAX_ENTRIES = 100_000
MAX_DEPTH = 60
LOADERS = {
    "DTypeNode", "DictNode", "FunctionNode", "JsonNode", "ListNode", "LossNode", "NdArrayNode", "ObjectNode",
    "PartialNode", "RandomGeneratorNode", "RandomStateNode", "SliceNode", "TreeNode", "TupleNode", "TypeNode",
}  # fmt: skip
NAMES = {
    "builtins": {"bool", "dict", "float", "int", "list", "slice", "str", "tuple"},
    "functools": {"partial"},  # of functions listed below
    "numpy": {
        "Generator", "RandomState", "bool", "bool_", "dtype", "float32", "float64", "int32", "int64", "ndarray", "str_",
        "uint32", "uint64", "uint8",
    },
    "sklearn": {
        *KNOWN, *SCALERS, "AbsoluteError", "AdamOptimizer", "ColumnTransformer", "CyAbsoluteError",
        "CyExponentialLoss", "CyHalfBinomialLoss", "CyHalfMultinomialLoss", "CyHalfSquaredError", "CyHuberLoss",
        "CyPinballLoss", "DummyClassifier", "DummyRegressor", "EpsilonInsensitive", "ExponentialLoss",
        "FunctionTransformer", "HalfBinomialLoss", "HalfLogitLink", "HalfMultinomialLoss", "HalfSquaredError", "Hinge",
        "Huber", "HuberLoss", "IdentityLink", "Interval", "LabelBinarizer", "LabelEncoder", "Log", "LogitLink",
        "ModifiedHuber", "MultinomialLogit", "OrdinalEncoder", "PinballLoss", "Pipeline", "SquaredEpsilonInsensitive",
        "SquaredHinge", "SquaredLoss", "Tree", "TreePredictor", "_BinMapper", "check_array",
    },
}  # fmt: skip


def read_skops(data: bytes) -> Source:
    """The source model of a skops file.

    Raises
    ------
    InputError
        The file is cut or too large, names a type that is not on the list, or skops is not installed.
    """
    try:
        from skops import io as skops
    except ImportError as error:
        raise InputError("a .skops file needs the skops package; pip install 'hardcase-export[skops]'") from error
    names = _audit(_schema(data))
    try:
        estimator = skops.loads(data, trusted=sorted(names & set(skops.get_untrusted_types(data=data))))
    except InputError:
        raise
    except Exception as error:  # a damaged description can raise anything
        raise InputError(
            f"the skops file cannot be read ({one_line(error)}); write it again with skops.io.dump"
        ) from error
    return replace(from_estimator(estimator), predict=None)


def _schema(data: bytes) -> Any:
    """The file's description; its size is bounded before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if len(entries) > MAX_ENTRIES or size > MAX_MODEL_BYTES:
                raise InputError(
                    f"the skops file unpacks to {len(entries)} entries of {size} bytes; train a smaller model"
                )
            info = archive.getinfo("schema.json")
            if info.file_size > MAX_SCHEMA_BYTES:
                raise InputError(f"the skops file describes itself in {info.file_size} bytes; train a smaller model")
            return json.loads(archive.read(info))
    except UNREADABLE_ZIP as error:
        raise InputError("the model is not a skops file, or it is cut; write it with skops.io.dump") from error


def _audit(schema: Any) -> set[str]:
    """All types that the description names; each is on the allow list."""
    names = set()
    for node in _nodes(schema):
        module, kind, loader = (str(node.get(key, "")) for key in ("__module__", "__class__", "__loader__"))
        if loader not in LOADERS:
            raise InputError(
                f"the skops file asks to be built by {loader[:40]!r}, which is not allowed; write the model alone"
            )
        root = module.partition(".")[0]
        is_known = kind in NAMES.get(root, ())
        if not is_known:
            raise InputError(
                f"the skops file names {module[:60]}.{kind[:40]}, which is not allowed; write the model as ONNX"
            )
        names.add(f"{module}.{kind}")
    return names


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of the description that names a type or a way of building it."""
    pending = [(schema, 0)]
    while pending:
        part, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise InputError(
                f"the skops file is nested deeper than {MAX_DEPTH} levels; write it again with skops.io.dump"
            )
        if isinstance(part, dict):
            if "__loader__" in part or "__class__" in part:
                yield part
            pending += [(x, depth + 1) for x in part.values()]
        elif isinstance(part, list):
            pending += [(x, depth + 1) for x in part]
