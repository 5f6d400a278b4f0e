# SPDX-License-Identifier: Apache-2.0
"""What clients and back ends say, in three shapes: plain JSON, KServe v2, and the chat of OpenAI. No I/O.

A client's request has one input, which is any JSON value, or messages of a chat. Everything is hostile that comes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite
from typing import Any
from uuid import uuid4

from ..api.gate import GateAnswer
from .settings import BackEnd

MOST_ROWS = 64  # of a request of KServe
NUMBERS = ("FP64", "FP32", "INT64", "INT32")
Heard = tuple[str, float | None, float | None]  # label, confidence, price


class RefusedError(Exception):
    """A request that is not answered: the status of HTTP, and a word for the count."""

    def __init__(self, status: int, outcome: str, message: str) -> None:
        super().__init__(message)
        self.status, self.outcome = status, outcome


@dataclass(frozen=True)
class Asked:
    """One input, with the messages in which a client of a chat gave it, and the most that it may cost."""

    value: Any
    messages: tuple[dict[str, Any], ...] = ()
    budget: float | None = None


# ---------------------------------------------------------------- clients


def asked_in(shape: str, said: Mapping[str, Any], name: str) -> list[Asked]:
    """What a client asks, one input or several rows of KServe.

    Raises
    ------
    ValueError, KeyError, TypeError
        It is not of this shape.
    """
    if shape == "json":
        _need("input" in said and said.keys() <= {"input", "budget"}, "it has not input, and budget at most, as keys")
        budget = said.get("budget")
        _need(budget is None or (_is_number(budget) and 0 <= budget <= 1e12), "budget is no amount")
        return [Asked(said["input"], budget=budget)]
    if shape == "openai":
        _need(said.get("model") == name, f"model is not {name!r}")
        _need(not said.get("stream"), "a label does not come in a stream")
        messages: Any = said.get("messages")
        _need(isinstance(messages, list) and bool(messages), "messages are no list")
        own = [m for m in messages if isinstance(m, dict) and m.get("role") == "user"]
        _need(bool(own) and all(isinstance(m, dict) for m in messages), "no message is the user's")
        return [Asked(_text_of(own[-1].get("content")), tuple(messages))]
    _need(str(said.get("id", "")).isprintable(), "id is no text that can be printed")
    inputs: Any = said.get("inputs")
    _need(isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], dict), "inputs are not one tensor")
    kind, shape_of, data = (inputs[0].get(key) for key in ("datatype", "shape", "data"))
    is_shape = isinstance(shape_of, list) and len(shape_of) in (1, 2) and all(type(k) is int for k in shape_of)
    _need(is_shape and isinstance(data, list) and 1 <= shape_of[0] <= MOST_ROWS, f"it has not 1 to {MOST_ROWS} rows")
    rows, columns = [*shape_of, 1][:2]
    _need(columns >= 1 and len(data) == rows * columns, "data have not as many values as the shape says")
    _need(kind in ("BYTES", *NUMBERS), f"the datatype is none of BYTES, {', '.join(NUMBERS)}")
    _need(all(isinstance(x, str) if kind == "BYTES" else _is_number(x) for x in data), f"data are not of type {kind}")
    cut = [data[k * columns : (k + 1) * columns] for k in range(rows)]
    return [Asked(row[0] if kind == "BYTES" and columns == 1 else row) for row in cut]


def answered(shape: str, answers: Sequence[GateAnswer], name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The answers in the client's shape."""
    first = answers[0]
    if shape == "json":
        return vars(first)
    more = [{**vars(one), "ms": round(one.ms, 3)} for one in answers]
    if shape == "openai":
        message = {"role": "assistant", "content": str(first.label)}
        return {
            "id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": int(time.time()), "model": name,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, "hardcase": more[0],
        }  # fmt: skip
    n, sure = [len(answers)], [-1.0 if one.confidence is None else one.confidence for one in answers]
    tensors = {"label": ("BYTES", [str(one.label) for one in answers]), "confidence": ("FP64", sure),
               "price": ("FP64", [one.price for one in answers])}  # fmt: skip
    outputs = [{"name": key, "datatype": kind, "shape": n, "data": data} for key, (kind, data) in tensors.items()]
    own = said.get("id")
    return {"model_name": name, "outputs": outputs} | ({"id": own} if isinstance(own, str) else {})


def _text_of(content: Any) -> str:
    """The text of a message, whose parts may be pictures, too."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    _need(bool(texts), "the user's last message has no text")
    return "\n".join(texts)


# ---------------------------------------------------------------- back ends


def question(one: BackEnd, asked: Asked, classes: Sequence[str]) -> dict[str, Any]:
    """What a back end is sent."""
    value = asked.value
    if one.shape == "json":
        return {"input": value}
    text = value if isinstance(value, str) else json.dumps(value)
    if one.shape == "kserve":
        is_row = isinstance(value, list) and bool(value) and all(map(_is_number, value))
        shape, kind, data = ([1, len(value)], "FP64", value) if is_row else ([1], "BYTES", [text])
        return {"inputs": [{"name": "input", "shape": shape, "datatype": kind, "data": data}]}
    prompt = one.prompt or f"Answer with one of these labels, and nothing else: {', '.join(classes)}"
    messages = asked.messages or ({"role": "user", "content": text},)
    first = {"role": "system", "content": prompt}
    return {"model": one.model, "messages": [first, *messages], "temperature": 0, "logprobs": True}


def heard(shape: str, said: Mapping[str, Any], labels: Mapping[str, str], classes: Sequence[str]) -> Heard:
    """Label, confidence and price that a back end gives.

    Parameters
    ----------
    labels : by their ``plain`` text, the labels that it may give
    classes : in the order of probabilities

    Raises
    ------
    ValueError, KeyError, IndexError, TypeError
        It is not of this shape, a number in it is none, or its label is not one that it may give.
    """
    confidence: Any = said.get("confidence")
    if shape == "json":
        label = said["label"]
    elif shape == "openai":
        choice = said["choices"][0]
        label, tokens = choice["message"]["content"], (choice.get("logprobs") or {}).get("content")
        confidence = exp(min(0.0, sum(token["logprob"] for token in tokens))) if tokens else None
    else:
        label, confidence = _of_tensors(said["outputs"], classes)
    price = said.get("price")
    _need(confidence is None or _is_number(confidence), "its confidence is no number")
    _need(price is None or (_is_number(price) and price >= 0), "its price is no amount")
    _need(isinstance(label, str | int) and not isinstance(label, bool), "its label is neither text nor a whole number")
    text = plain(str(label)[:1000])
    _need(text in labels, f"its label {text[:40]!r} is none of the gate's")
    return labels[text], confidence, price


def plain(label: str) -> str:
    """A label without case, quotes and a final point.

    >>> plain(' "Cat". ')
    'cat'
    """
    return label.strip().strip("\"'`.").strip().casefold()


def _of_tensors(outputs: Any, classes: Sequence[str]) -> tuple[Any, Any]:
    """Label and confidence of the outputs of KServe: a label's text and a number, or the classes' probabilities."""
    texts = [o["data"][0] for o in outputs if o["datatype"] == "BYTES" and o["name"] != "price"]
    numbers = {o["name"]: o["data"] for o in outputs if o["datatype"] in NUMBERS}
    if texts:
        return texts[0], numbers.get("confidence", [None])[0]
    shares: list[Any] = next(iter(numbers.values()), [])
    is_whole = len(shares) == len(classes) and all(_is_number(x) and 0 <= x <= 1 for x in shares)
    _need(is_whole, f"it gives neither a label nor the probabilities of {len(classes)} classes")
    return classes[max(range(len(shares)), key=shares.__getitem__)], max(shares)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and isfinite(value)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
