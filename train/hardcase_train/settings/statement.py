# SPDX-License-Identifier: Apache-2.0
"""A setting is stated once: in the annotation of its field, which has its key, type, bounds, unit and sentence.

From the statements come the reading of hardcase.toml (``toml.py``), the check of every value, also of one that Python
code gives, the comments of ``hardcase init``, the help of flags, and the tables of docs/configuration.md. msgspec keeps
the records and converts the values; this module says in words what a type expects.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

REQUIRED = msgspec.NODEFAULT
NUMBERS = (inspect.IntType, inspect.FloatType)


def said(key: str, sentence: str, *, page: str = "", default: str = "") -> msgspec.Meta:
    """The statement of a setting, for the annotation of its field.

    Parameters
    ----------
    key : in hardcase.toml, with its table, such as ``cost.uplink.per_byte``
    sentence : what it says, in plain words
    page : of docs/, where more of it stands
    default : what its absence means, where the default itself does not say it
    """
    return msgspec.Meta(description=sentence, extra={"key": key, "page": page, "default": default})


def one_of(words: tuple[str, ...]) -> msgspec.Meta:
    """The bounds of a text that is one of a few words."""
    return msgspec.Meta(pattern=f"^({'|'.join(words)})$", extra={"words": words})


class Statement(msgspec.Struct, frozen=True):
    """What is stated of one setting: ``table`` and ``key`` are its place in the TOML, ``type`` has its bounds."""

    field: str
    table: str
    key: str
    type: Any
    default: Any  # REQUIRED: there is none
    sentence: str
    page: str
    absent: str

    @property
    def absence(self) -> str:
        """What holds where the key is absent, in words."""
        if self.absent or self.default is REQUIRED:
            return self.absent or "needed"
        if isinstance(self.default, tuple) and self.default:
            return ", ".join(f"{value}" for value in self.default)
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, int | float):
            return f"{self.default:g}"
        return str(self.default) if self.default not in (None, "", (), {}) else "none"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A record of settings: every value is checked against its statement, whoever gives it.

    Raises
    ------
    InputError
        A value is of another type, or out of its bounds.
    """

    def __post_init__(self) -> None:
        for one in statements(type(self)):
            value = check(self._named(one), one.type, getattr(self, one.field))
            msgspec.structs.force_setattr(self, one.field, value)

    def _named(self, one: Statement) -> str:
        """A setting, as messages call it."""
        return f"[{one.table}] {one.key}"

    def but(self, **values: Any) -> Self:
        """A copy of the settings with these values.

        Raises
        ------
        InputError
            As for the record itself.
        """
        return msgspec.structs.replace(self, **values)


@cache
def statements(record: type[Settings]) -> tuple[Statement, ...]:
    """What is stated of each setting of a record, in the order of its fields; fields without a statement are left out.

    >>> class Radio(Settings, frozen=True, kw_only=True):
    ...     wait: "Annotated[float, msgspec.Meta(ge=0, le=9), said('radio.wait', 'seconds until it sends')]" = 1.0
    >>> [(one.table, one.key, one.default, one.sentence) for one in statements(Radio)]
    [('radio', 'wait', 1.0, 'seconds until it sends')]
    >>> Radio(wait=10)
    Traceback (most recent call last):
    hardcase_edge.errors.InputError: [radio] wait is 10, a number from 0 to 9 is expected
    """
    hints, found = get_type_hints(record, include_extras=True), []
    for field in msgspec.structs.fields(record):
        metas = [meta for meta in get_args(hints[field.name])[1:] if isinstance(meta, msgspec.Meta)]
        said_of = next((m for m in metas if m.extra is not None and "key" in m.extra), None)
        if said_of is None:
            continue
        assert said_of.extra is not None
        table, _, key = said_of.extra["key"].rpartition(".")
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        page, absent = said_of.extra["page"], said_of.extra["default"]
        found.append(
            Statement(field.name, table, key, hints[field.name], default, said_of.description or "", page, absent)
        )
    return tuple(found)


def stated(record: type[Settings], field: str) -> Statement:
    """What is stated of one setting, for a comment or the help of a flag.

    >>> from .config import Config
    >>> stated(Config, "seed").sentence
    'of splits and training'
    """
    return next(one for one in statements(record) if one.field == field)


def check(what: str, kind: Any, value: Any) -> Any:
    """The value as ``kind``, a type with its bounds, has it; ``what`` names it in messages.

    Raises
    ------
    InputError
        It is of another type, or out of its bounds.
    """
    if hasattr(value, "dtype") and not value.shape:  # a number of numpy
        value = value.item()
    try:
        return msgspec.convert(value, kind, dec_hook=_path)
    except msgspec.ValidationError:
        if isinstance(value, dict) and get_origin(bare := _bare(kind)) is dict:
            for name, part in value.items():  # a message names the place
                check(f"{what}.{terminal(name):.60}", get_args(bare)[1], part)
        raise InputError(f"{what} is {_shown(value):.80}{_expected(kind)}") from None


def _path(kind: type, value: Any) -> Any:
    """Values of types that are not msgspec's own: paths may be given as text."""
    if isinstance(value, kind):
        return value
    if kind is Path and isinstance(value, str) and "\0" not in value:  # which no name of a file has
        return Path(value)
    raise TypeError


def _bare(kind: Any) -> Any:
    """A type without the statements and bounds that annotate it."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _number(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


@cache
def _expected(kind: Any) -> str:
    """The end of a message on a value that ``kind`` does not take."""
    info = inspect.type_info(kind)
    words = _words(info)
    return f"; use one of {', '.join(words)}" if words else f", {_noun(info)} is expected"


def _extra(info: inspect.Type) -> dict[str, Any]:
    return (info.extra or {}) if isinstance(info, inspect.Metadata) else {}


def _words(info: inspect.Type) -> tuple[str, ...]:
    """The words that a type takes; none where it takes any."""
    if isinstance(info, inspect.LiteralType):
        return tuple(map(str, info.values))
    if isinstance(info, inspect.UnionType):
        return tuple(word for part in info.types for word in _words(part))
    words: tuple[str, ...] = _extra(info).get("words", ())
    return words or (_words(info.type) if isinstance(info, inspect.Metadata) else ())


def _noun(info: inspect.Type, noun: str = "") -> str:
    """A type in words, with its bounds."""
    noun = noun or _extra(info).get("noun", "")
    if isinstance(info, inspect.Metadata):
        return _noun(info.type, noun)
    if isinstance(info, inspect.UnionType):
        parts = [_noun(part, noun) for part in info.types if not isinstance(part, inspect.NoneType)]
        return " or ".join(dict.fromkeys(parts))
    if isinstance(info, NUMBERS):
        noun = noun or ("a whole number" if isinstance(info, inspect.IntType) else "a number")
        bounds = {" above": info.gt, " from": info.ge, " to": info.le, " below": info.lt}
        return noun + "".join(f"{word} {_number(n)}" for word, n in bounds.items() if n is not None)
    if isinstance(info, inspect.StrType):
        least = info.min_length or 0
        return noun or ("a text" if info.max_length is None else f"a text of {least} to {info.max_length} characters")
    if isinstance(info, inspect.CustomType):
        return noun or "the name of a file"
    names: dict[type, str] = {inspect.BoolType: "true or false", inspect.DictType: "a table"}
    return noun or names.get(type(info), "an array")
