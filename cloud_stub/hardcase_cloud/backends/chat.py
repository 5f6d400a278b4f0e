# SPDX-License-Identifier: Apache-2.0
"""What a large model is asked about a case, and what of its reply is an answer: chat completions, without a network.

The first message says what the readings are, the second has those of one case as JSON; the answer's form is demanded
by a JSON schema whose labels are an enumeration. A reply counts only if its content is such JSON and nothing else.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hardcase_edge.bundle.file import Bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import to_result
from hardcase_edge.errors import InputError
from hardcase_edge.program.kinds import CLASS, VALUE
from hardcase_edge.program.readings import Reading

from ..answer.onnx_model import BASIS_POINTS
from .json_http import json_object

MOST_TOKENS = 100_000_000  # of one reply; more is no count
_WORD = re.compile(r"[a-z][a-z_]{0,60}")
ROLE = (
    "You decide the hard cases of a device with sensors. You get the readings of one case as JSON, null where one is "
    "missing. Answer with JSON alone, as the schema says: "
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a model must know to answer cases of one kind.

    Parameters
    ----------
    features : names of the readings
    classes : labels in their order; empty for values
    target : name of what is predicted
    dtypes : of the readings; empty: all are f64
    steps : of values, a result is the value times 2^steps
    ranges : lowest and highest reading of each feature, None where unknown; or empty
    categories : features whose readings are codes, with the texts of these
    sha256 : what requests call f0, in hex

    Raises
    ------
    InputError
        Two labels are the same text.
    """

    features: Sequence[str]
    classes: Sequence[str | int | float] = ()
    target: str = "target"
    dtypes: Sequence[str] = ()
    steps: int = 0
    ranges: Sequence[Sequence[float] | None] = ()
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sha256: str = ""

    def __post_init__(self) -> None:
        if len({str(label) for label in self.classes}) != len(self.classes):
            raise InputError("two classes are the same text, so no answer could name one of them; rename one")

    def request(self, model: str, task: str, readings: Sequence[Reading]) -> dict[str, Any]:
        """The body of a request of chat completions about one case.

        Parameters
        ----------
        model : name of the model
        task : what a user adds to the first message
        readings : in the order of ``features``, None for missing
        """
        key, kind = self._answer
        schema = {"type": "object", "properties": {key: kind}, "required": [key], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        case = {name: self._shown(k, x) for k, (name, x) in enumerate(zip(self.features, readings, strict=True))}
        messages = [
            {"role": "system", "content": self._about(task)},
            {"role": "user", "content": json.dumps(case, ensure_ascii=False)},
        ]
        return {"model": model, "messages": messages, "response_format": form}

    def answer_in(self, data: bytes) -> tuple[int, int]:
        """The class index or result of a reply of status 200, and the confidence in basis points: full for a label.

        Raises
        ------
        InputError
            It is no answer; the message says why, without any word of the reply.
        """
        try:
            choices = json_object(data).get("choices")
        except ValueError as error:
            raise InputError("answers no JSON object") from error
        choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise InputError("answers no choice with a message")
        if message.get("refusal"):
            raise InputError("answers a refusal")
        if choice.get("finish_reason") not in (None, "stop"):
            raise InputError("answers an answer that is cut off")
        content = message.get("content")
        if not isinstance(content, str):
            raise InputError("answers a message without text")
        try:
            answer = json_object(content)
        except ValueError as error:
            raise InputError("answers a text that is not the JSON asked for") from error
        return self._result(answer)

    def _result(self, answer: dict[str, Any]) -> tuple[int, int]:
        key, _ = self._answer
        if set(answer) != {key}:
            raise InputError("answers JSON of another shape")
        found = answer[key]
        if self.classes:
            number = {str(label): k for k, label in enumerate(self.classes)}
            if not isinstance(found, str) or found not in number:
                raise InputError("answers a label that is not a class")
            return number[found], BASIS_POINTS
        if type(found) not in (int, float) or abs(found) > sys.float_info.max or not math.isfinite(found):
            raise InputError("answers a value that is not a finite number")
        return to_result(float(found), self.steps), 0

    @property
    def _answer(self) -> tuple[str, dict[str, Any]]:
        """The key of an answer, and the schema of its value."""
        if self.classes:
            return CLASS.output, {"type": "string", "enum": [str(label) for label in self.classes]}
        return VALUE.output, {"type": "number"}

    def _about(self, task: str) -> str:
        key, _ = self._answer
        lines = [f"{ROLE}the {key} of {self.target!r}."]
        for k, name in enumerate(self.features):
            pair = self.ranges[k] if self.ranges else None
            if name in self.categories:
                lines.append(f"{name!r} is a text.")
            elif pair is not None and max(map(abs, pair)) <= sys.float_info.max:  # a manifest has any whole number
                lines.append(f"{name!r} was between {pair[0]:g} and {pair[1]:g} so far.")
        return "\n".join([*lines, task] if task else lines)

    def _shown(self, k: int, x: Reading) -> Any:
        """A reading as JSON: the text of a code, and no more digits than its type has."""
        if x is None or not math.isfinite(x):
            return None
        texts = self.categories.get(self.features[k])
        if texts is not None:
            return texts[int(x)] if 0 <= x < len(texts) else None
        if self.dtypes and self.dtypes[k] == "f32":
            return float(str(np.float32(x)))
        return x


def case_of(contents: Bundle) -> Case:
    """The cases that a bundle forwards.

    Raises
    ------
    InputError
        It never forwards.
    """
    program = contents.program
    manifest = Manifest.from_json(contents.manifest, program)
    if not manifest.hpc:
        raise InputError(f"the bundle {manifest.name!r} never forwards, so a large model has nothing to answer")
    sent = program.uplink.features
    return Case(
        features=[manifest.features[f] for f in sent],
        classes=manifest.classes,
        target=manifest.target,
        dtypes=[program.features[f].dtype for f in sent],
        steps=0 if manifest.value is None else manifest.value.steps,
        ranges=[manifest.ranges[f] for f in sent] if manifest.ranges else (),
        categories=manifest.categories,
        sha256=manifest.hpc,
    )


def usage_in(data: bytes) -> tuple[int, int] | None:
    """The tokens of a request and of its reply, as the reply says; None if it does not say how many."""
    try:
        said = json_object(data).get("usage")
    except ValueError:
        return None
    counts = said if isinstance(said, dict) else {}
    asked, answered = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if type(asked) is not int or type(answered) is not int or min(asked, answered) < 0:
        return None
    return None if max(asked, answered) > MOST_TOKENS else (asked, answered)


def error_in(data: bytes) -> str:
    """The word of an error, such as "rate_limit_exceeded"; "" if there is none.

    Its message is left out: a server may repeat the key in it.
    """
    try:
        said = json_object(data).get("error")
    except ValueError:
        return ""
    words = [said.get(key) for key in ("code", "type")] if isinstance(said, dict) else []
    return next((word for word in words if isinstance(word, str) and _WORD.fullmatch(word)), "")
