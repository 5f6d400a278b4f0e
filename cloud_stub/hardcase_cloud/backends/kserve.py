# SPDX-License-Identifier: Apache-2.0
"""The HPC as a model behind the KServe v2 protocol, ``kserve+http://HOST[:PORT]/v2/models/NAME``, such as MLServer's.

Requests and answers are JSON (the protocol's base, which every server has). The model has one input of shape
(n, n_features); it answers with probabilities (n, n_classes), with labels or with values (n,), whatever their name is.
JSON has no NaN: missing readings are sent as the number that ``?missing=-1`` at the end of the URL names, and without
it a row that lacks one fails. https is not spoken: put the worker beside the server, or a proxy between.
"""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import Bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.link.address import is_host

from ..answer.function import FunctionHpc
from .json_http import Server, json_object

SHAPE = "kserve+http://host:port/v2/models/NAME"
MAX_WORDS = 1000  # of an answer that is an error
NUMBERS = {"FP64": np.float64, "FP32": np.float32}
_URL = re.compile(
    r"kserve\+http://(?P<host>[A-Za-z0-9.-]{1,253})(:(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/v2/models/[A-Za-z0-9._-]{1,200}(/versions/[A-Za-z0-9._-]{1,50})?)(\?missing=(?P<missing>-?[0-9.]{1,20}))?"
)


class KserveModel:
    """A function of rows that a server computes.

    Parameters
    ----------
    url : as of this module
    n_features : columns of its input
    limit_s : seconds for one call

    Raises
    ------
    InputError
        The URL is invalid, the server cannot be reached, or the model takes something else.
    """

    def __init__(self, url: str, n_features: int, limit_s: float) -> None:
        parts = _URL.fullmatch(url)
        if parts is None or not is_host(parts["host"]) or not 0 < int(parts["port"] or 80) < 65_536:
            raise InputError(f"--hpc is not the URL of a KServe model; use {SHAPE}")
        self._url, self._path = url, parts["path"]
        self._missing = None if parts["missing"] is None else _number(parts["missing"], url)
        self._server, self._limit_s = Server(parts["host"], int(parts["port"] or 80)), limit_s
        metadata = self._ask("GET", self._path)
        inputs = metadata.get("inputs")
        if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
            raise InputError(f"{url} has other inputs than one table of numbers; serve a model with one input")
        self._input, self._type = inputs[0].get("name"), inputs[0].get("datatype")
        shape = inputs[0].get("shape")
        if not isinstance(self._input, str) or not isinstance(self._type, str) or self._type not in NUMBERS:
            raise InputError(f"{url} takes {str(self._type)[:20]}; serve a model that takes FP64 or FP32")
        if not isinstance(shape, list) or len(shape) != 2 or shape[1] not in (-1, n_features):
            raise InputError(f"{url} takes rows of shape {str(shape)[:40]}, and the bundle sends {n_features} readings")

    def __call__(self, X: NDArray[Any], names: tuple[str, ...]) -> NDArray[Any]:
        """Probabilities, labels or values of rows (n, n_features), NaN for missing.

        Raises
        ------
        InputError
            A row lacks a reading and the URL says no number for that, or the server answers something else.
        """
        if self._missing is not None:
            X = np.nan_to_num(X, nan=self._missing)
        elif np.isnan(X).any():
            raise InputError(f"{self._url}: a reading is missing, for which JSON has no number; add ?missing=-1")
        rows = {"name": self._input, "shape": list(X.shape), "datatype": self._type, "data": X.ravel().tolist()}
        answer = self._ask("POST", f"{self._path}/infer", json.dumps({"inputs": [rows]}).encode())
        outputs = answer.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict) and isinstance(shape := output.get("shape"), list) and shape[:1] == [len(X)]:
                return self._array(output, shape)
        raise InputError(f"{self._url} answers nothing with a row for each of {len(X)}")

    def _array(self, output: dict[str, Any], shape: list[Any]) -> NDArray[Any]:
        try:
            data = np.array(output["data"])
            return data.reshape([int(n) for n in shape]).squeeze(axis=1) if shape[1:] == [1] else data.reshape(shape)
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"{self._url} answers no array of shape {str(shape)[:40]}: {one_line(error)}") from error

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """A JSON object, over a connection of its own, so that none is stale."""
        try:
            answered = self._server.ask(method, path, monotonic() + self._limit_s, body)
        except (OSError, http.client.HTTPException) as error:
            raise InputError(f"{self._url} cannot be asked: {one_line(error)}; start it, or correct it") from error
        if answered.status != 200:
            text = " ".join(answered.data[:MAX_WORDS].decode(errors="replace").split())
            raise InputError(f"{self._url} answers status {answered.status}: {text[:200]}")
        try:
            return json_object(answered.data)
        except ValueError as error:
            raise InputError(f"{self._url} answers no JSON object: {one_line(error)}") from error


def kserve_hpc(url: str, contents: Bundle, limit_s: float) -> FunctionHpc:
    """The model behind this URL in the place of a bundle's HPC.

    Raises
    ------
    InputError
        As of ``KserveModel``; or the bundle never forwards.
    """
    program = contents.program
    model: Callable[..., Any] = KserveModel(url, len(program.uplink.features), limit_s)
    manifest = Manifest.from_json(contents.manifest, program)
    return FunctionHpc(url, program, manifest, limit_s=limit_s, function=model)


def _number(text: str, url: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--hpc {url[:120]!r}: missing={text} is not a number; use {SHAPE}?missing=-1")
    return number
