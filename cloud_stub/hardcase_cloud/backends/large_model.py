# SPDX-License-Identifier: Apache-2.0
"""The HPC as a large model behind chat completions, ``openai+http[s]://HOST[:PORT]/v1?model=NAME&key=VARIABLE``.

``key`` names the environment variable of the key, which is in no message, record or command line; ``settings`` names a
TOML file with these keys, each of which may be left out:

    task = "A pump; vibration is in mm/s."    # what the model should know, beside names and ranges of the readings
    at_once = 8                               # requests on their way
    input_price = 0.15                        # of a million tokens, in the bundle's unit of cost
    output_price = 0.6
    body = { temperature = 0 }                # more keys of each request

Each row is a request of its own, with a deadline of its own: what fails is asked again, three times at most, while the
deadline lasts. What is no answer in the end is None of the worker's: the row is refused, and no other.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Any, Self
from urllib.parse import parse_qsl

from hardcase_edge.base.files import read_bounded
from hardcase_edge.base.hints import check_keys
from hardcase_edge.base.toml import parse_toml
from hardcase_edge.errors import InputError, one_line
from hardcase_edge.link.address import is_host
from hardcase_edge.program.cost import to_micro, token_cost
from hardcase_edge.program.readings import Reading

from ..answer.asking import FAILED, Answer
from .chat import Case, error_in, usage_in
from .json_http import Server

log = logging.getLogger(__name__)

SHAPE = "openai+https://host/v1?model=NAME&key=VARIABLE"
LIMIT_S = 10.0  # of one row; a request's own deadline is mostly shorter
MARGIN_S = 0.05  # a refusal still reaches the device
MOST_TRIES, FIRST_PAUSE_S = 3, 0.1  # the pause doubles
LATER = {408, 425, 429, 500, 502, 503, 504}  # statuses after which the same request may succeed
MAX_REPLY_BYTES = 1024 * 1024
MAX_SETTINGS_BYTES = 256 * 1024
MOST_AT_ONCE = 256
OURS = ("model", "messages", "response_format", "stream", "n")  # keys of a request that settings leave alone
SHOWN = 6  # characters of the key that no message has
LOCAL = ("localhost", "127.0.0.1")
_URL = re.compile(
    r"openai\+(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]{1,253})(:(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(/[A-Za-z0-9._~-]{1,100}){0,8})/?\?(?P<query>[\x21-\x7e]{1,1000})"
)
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_KEY = re.compile(r"[A-Za-z0-9._~+/=:-]{8,2000}")  # of a header, and such that no message can show it escaped
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user says of a large model.

    task : text that the first message ends with
    at_once : requests on their way
    input_price, output_price : of a million tokens, in the unit of cost
    body : more keys of each request
    """

    task: str = ""
    at_once: int = 8
    input_price: float = 0.0
    output_price: float = 0.0
    body: Mapping[str, Any] = field(default_factory=dict)


class LargeModel:
    """A large model as f0; ``begin`` may be called by one thread, and rows are asked by others.

    Parameters
    ----------
    url : as of this module
    case : what is to be answered
    limit_s : seconds that one row may take, whatever its deadline is

    Attributes
    ----------
    sha256, dtypes : as of the case
    at_once : int
        Rows that are asked at the same time.

    Raises
    ------
    InputError
        The URL, its variable or its settings are wrong, or the server cannot be reached or refuses the key.
    """

    def __init__(self, url: str, case: Case, *, limit_s: float = LIMIT_S) -> None:
        parts, words = address_in(url, "--hpc")
        is_tls = parts["scheme"] == "https"
        self._key = _key_in(words.get("key"))
        self._settings = read_settings(words["settings"]) if "settings" in words else Settings()
        self._name, self._case, self._limit_s = words["model"], case, limit_s
        self._where = (
            f"{parts['scheme']}://{parts['host']}{':' + parts['port'] if parts['port'] else ''}{parts['path']}"
        )
        self._path = parts["path"]
        port = int(parts["port"] or (443 if is_tls else 80))
        self._server = Server(parts["host"], port, is_tls=is_tls, keeps=True, max_bytes=MAX_REPLY_BYTES)
        self.sha256, self.dtypes, self.at_once = case.sha256, tuple(case.dtypes), self._settings.at_once
        self._pool = ThreadPoolExecutor(self.at_once, "large-model")
        self._lock = Lock()
        self._n = dict.fromkeys(("asked", "asked_again", "tokens_in", "tokens_out", "uncounted"), 0)
        self._check()

    def begin(self, row: Sequence[Reading], left_s: float) -> Future[Answer]:
        """Have a row asked; the answer comes within ``left_s`` seconds, or is ``FAILED``."""
        return self._pool.submit(self._answer, row, monotonic() + left_s - MARGIN_S)

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class index or result, and the confidence in basis points, of each row.

        Raises
        ------
        InputError
            A row has no answer; the tokens of the others are spent.
        """
        answers = self.answers(rows)
        good = [answer for answer in answers if not isinstance(answer, str)]
        if len(good) < len(answers):
            raise InputError(f"{self._name} at {self._where} answers {len(good)} of {len(answers)} rows; see the log")
        return good

    def answers(self, rows: Sequence[Sequence[Reading]]) -> list[Answer]:
        """The answer of each row as ``answer`` has it, or ``FAILED``, after ``limit_s`` for each at most."""
        return list(self._pool.map(lambda row: self._answer(row, float("inf")), rows))

    def figures(self) -> dict[str, int]:
        """Requests made, tokens and their cost in micro-units; ``uncounted`` replies do not say their tokens."""
        with self._lock:
            n = dict(self._n)
        prices = to_micro(self._settings.input_price), to_micro(self._settings.output_price)
        return {**n, "cost_micro": token_cost((n["tokens_in"], n["tokens_out"]), prices)}

    def close(self) -> None:
        """Wait for the rows on their way, and close the connections; ``with`` does so at the end of its block."""
        self._pool.shutdown()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ parts

    def _check(self) -> None:
        """Ask the server for its models, which costs nothing: whether it is there, and takes the key."""
        try:
            answered = self._server.ask("GET", f"{self._path}/models", monotonic() + LIMIT_S, None, self._headers())
        except (OSError, http.client.HTTPException) as error:
            raise InputError(
                f"{self._where} cannot be asked: {self._without_key(one_line(error))}; start it, or correct it"
            ) from None
        if answered.status in (401, 403):
            self.close()
            raise InputError(f"{self._where} refuses the key (status {answered.status}); name its variable with &key=")

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _answer(self, row: Sequence[Reading], until: float) -> Answer:
        until = min(until, monotonic() + self._limit_s)
        body = {**self._settings.body, **self._case.request(self._name, self._settings.task, row)}
        try:
            return self._case.answer_in(self._reply(json.dumps(body).encode(), until))
        except InputError as error:
            log.warning("%s at %s %s", self._name, self._where, error)
            return FAILED

    def _reply(self, body: bytes, until: float) -> bytes:
        """The body of a reply of status 200.

        Raises
        ------
        InputError
            There is none in time.
        """
        pause_s = FIRST_PAUSE_S
        for tried in range(1, MOST_TRIES + 1):
            after = ""
            self._count(asked=1, asked_again=int(tried > 1))
            try:
                answered = self._server.ask("POST", f"{self._path}/chat/completions", until, body, self._headers())
            except (OSError, http.client.HTTPException) as error:
                why = f"cannot be asked: {self._without_key(one_line(error)) or type(error).__name__}"
            else:
                usage = usage_in(answered.data)
                asked, said = usage or (0, 0)
                self._count(tokens_in=asked, tokens_out=said)
                if answered.status == 200:
                    self._count(uncounted=int(usage is None))
                    return answered.data
                word = self._without_key(error_in(answered.data))
                why = f"answers status {answered.status}" + (f" ({word})" if word else "")
                after = answered.after
                if answered.status not in LATER:
                    break
            pause_s = max(pause_s, float(after) if _SECONDS.fullmatch(after) else 0.0)
            if tried == MOST_TRIES or monotonic() + pause_s >= until:
                break
            sleep(pause_s)
            pause_s *= 2
        raise InputError(why)

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, n in more.items():
                self._n[name] += n

    def _without_key(self, text: str) -> str:
        """This text, which is a server's, or "" if a part of the key is in it."""
        parts = {self._key[k : k + SHOWN] for k in range(len(self._key) - SHOWN + 1)}
        return "" if any(part in text for part in parts) else text


def address_in(url: str, what: str) -> tuple[re.Match[str], dict[str, str]]:
    """The parts of a URL, and its words: the model, and the variable of the key and the settings if it names them.

    Parameters
    ----------
    what : says so, in messages; these do not repeat the URL, which may hold a key by mistake

    Raises
    ------
    InputError
        It is no URL of a large model, or its key would be sent as plain text to another machine.
    """
    parts = _URL.fullmatch(url)
    if parts is None or not is_host(parts["host"]) or not 0 < int(parts["port"] or 80) < 65_536:
        raise InputError(f"{what} is not the URL of a large model; use {SHAPE}")
    words = _words(parts["query"], what)
    if "key" in words and parts["scheme"] == "http" and parts["host"] not in LOCAL:
        raise InputError(f"the key of {words['key']} would go to {parts['host']} as plain text; use openai+https://")
    return parts, words


def read_settings(path: str | Path) -> Settings:
    """The settings in a TOML file.

    Raises
    ------
    InputError
        The file cannot be read, has an unknown key, or a value is out of range.
    """
    tree = parse_toml(str(path), read_bounded(Path(path), MAX_SETTINGS_BYTES, "file of settings", remedy="name a file"))
    check_keys(str(path), tree, tuple(Settings.__dataclass_fields__))
    settings = Settings(**tree)
    for name in ("input_price", "output_price"):
        price = getattr(settings, name)
        if type(price) not in (int, float) or not 0 <= price <= 1e9:
            raise InputError(f"{path}: {name} is {str(price)[:60]!r}; give the price of a million tokens, from 0")
    if type(settings.at_once) is not int or not 1 <= settings.at_once <= MOST_AT_ONCE:
        raise InputError(f"{path}: at_once is {str(settings.at_once)[:60]!r}; give a number from 1 to {MOST_AT_ONCE}")
    if not isinstance(settings.task, str) or not isinstance(settings.body, dict):
        raise InputError(f"{path}: task is a text, and body a table of keys; correct it")
    if taken := sorted(set(settings.body) & set(OURS)):
        raise InputError(f"{path}: body has {taken[0]!r}, which the worker sets itself; remove it")
    try:
        json.dumps(settings.body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: body cannot be JSON: {one_line(error)}; use texts and numbers") from error
    return settings


def _words(query: str, what: str) -> dict[str, str]:
    """What the URL says after its ``?``."""
    try:
        pairs = parse_qsl(query, strict_parsing=True, max_num_fields=10)
    except ValueError as error:
        raise InputError(f"{what} has no KEY=VALUE after its ?; use {SHAPE}") from error
    words = dict(pairs)
    if len(words) < len(pairs) or not {"model"} <= set(words) <= {"model", "key", "settings"}:
        raise InputError(
            f"{what} needs model=NAME after its ?, and may have key=VARIABLE and settings=FILE; use {SHAPE}"
        )
    if not _MODEL.fullmatch(words["model"]):
        raise InputError(f"{what} names a model with other characters than letters, digits and ._:/@+-; use {SHAPE}")
    if "key" in words and not _VARIABLE.fullmatch(words["key"]):
        raise InputError(f"{what} has key= without the name of an environment variable; name it, such as key=API_KEY")
    return words


def _key_in(variable: str | None) -> str:
    """The key in this environment variable; "" if none is named. No message has it."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "")
    if not _KEY.fullmatch(key):
        raise InputError(
            f"the environment variable {variable} has no key of 8 to 2000 letters, digits and ._~+/=-; set it"
        )
    return key
