# SPDX-License-Identifier: Apache-2.0
"""Records: frozen dataclasses without importing ``dataclasses``, which costs a device start-up time and memory.

``dataclasses`` takes a fifth of a device's start and a tenth of its memory, because it compiles functions for each
class; records share theirs. ``record`` takes the arguments of ``dataclass(frozen=True, slots=True)`` and makes an
equivalent class: its values compare, hash, print, copy and pickle by their fields. Type checkers treat records as
dataclasses, and so do ``dataclasses.replace``, ``fields`` and ``asdict``: a class builds its ``__dataclass_fields__``
when one of them reads it, which never happens on a device.

>>> @record(frozen=True, slots=True)
... class Reading:
...     sensor: str
...     value: float = 0.0
>>> Reading("TS1", 21.5)
Reading(sensor='TS1', value=21.5)
>>> Reading("TS1") == Reading("TS1", 0.0)
True
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["cached", "field", "record"]

_NONE: Any = object()


class _Field:
    """The settings of one field: its default, and whether ``repr`` shows it."""

    def __init__(self, *, default: Any = _NONE, default_factory: Any = None, repr: bool = True) -> None:
        self.has_default = default is not _NONE or default_factory is not None
        self.make_default = default_factory or (lambda: default)
        self.is_shown = repr


class _Cached:
    """A property that a record works out once. It is not a field: nothing compares, prints, copies or pickles it."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self.__doc__ = make.__doc__
        self.slot = f"_{make.__name__}"

    def __get__(self, instance: object, owner: object = None) -> Any:
        if instance is None:
            return self
        value = getattr(instance, self.slot, _NONE)
        if value is _NONE:
            value = self._make(instance)
            object.__setattr__(instance, self.slot, value)
        return value


class _Shape:
    """All fields of one class in order, with the setters and the getter of their values."""

    def __init__(self, fields: dict[str, _Field], kw_only: bool) -> None:
        self.fields = fields
        self.names = tuple(fields)
        self.kw_only = kw_only
        self.count = -1 if kw_only else len(fields)  # positional values that make a whole record; -1: never
        self.setters: list[Callable[[object, object], None]] = []
        self.values_of = attrgetter(*fields)

    def complete(self, cls: type, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All values in order: the positional ones, then those given by name, and defaults for the rest."""
        if len(values) > max(self.count, 0):
            raise TypeError(f"{cls.__name__} takes {max(self.count, 0)} positional values, {len(values)} were given")
        complete = list(values)
        for name in self.names[len(values) :]:
            if name in named:
                complete.append(named.pop(name))
            elif self.fields[name].has_default:
                complete.append(self.fields[name].make_default())
            else:
                raise TypeError(f"{cls.__name__} needs a value for {name}")
        if named:
            raise TypeError(f"{cls.__name__} has no field {next(iter(named))}, or its value was given twice")
        return tuple(complete)


class _DataclassFields:
    """Descriptor of a class's ``__dataclass_fields__``, which are built when they are first read."""

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        fields: list[Any] = []
        for name, settings in self._shape.fields.items():
            default: dict[str, Any] = {"default_factory": settings.make_default} if settings.has_default else {}
            dataclass_field = dataclasses.field(repr=settings.is_shown, kw_only=self._shape.kw_only, **default)
            fields.append((name, owner.__annotations__[name], dataclass_field))
        twin: Any = dataclasses.make_dataclass(owner.__name__, fields)
        owner.__dataclass_fields__ = twin.__dataclass_fields__
        return twin.__dataclass_fields__


class _Record:
    """The base class of all records: comparison, hash, ``repr``, pickling, and no assignment."""

    __slots__ = ()
    _shape: _Shape

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values_of = self._shape.values_of
        return bool(values_of(self) == values_of(other))

    def __hash__(self) -> int:
        return hash(self._shape.values_of(self))

    def __repr__(self) -> str:
        shown = [name for name, settings in self._shape.fields.items() if settings.is_shown]
        return f"{self.__class__.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in shown])})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    def __getstate__(self) -> list[Any]:
        return [getattr(self, name) for name in self._shape.names]

    def __setstate__(self, state: list[Any]) -> None:
        for setter, value in zip(self._shape.setters, state, strict=True):
            setter(self, value)


def _init_of(shape: _Shape) -> Callable[..., None]:
    count, setters = shape.count, shape.setters

    def init(self: Any, *values: Any, **named: Any) -> None:
        if named or len(values) != count:
            values = shape.complete(self.__class__, values, named)
        for setter, value in zip(setters, values):  # noqa: B905 - lengths are equal, and every decision runs this
            setter(self, value)

    return init


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    def init_and_check(self: Any, *values: Any, **named: Any) -> None:
        init(self, *values, **named)
        self.__post_init__()

    return init_and_check


def _record(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
    assert (frozen, slots) == (True, True), "a record is always frozen and has slots"

    def make(cls: type) -> type:
        body = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        fields = {name: body.pop(name, _NONE) for name in cls.__annotations__}
        shape = _Shape({k: v if isinstance(v, _Field) else _Field(default=v) for k, v in fields.items()}, kw_only)
        slots = shape.names + tuple([value.slot for value in body.values() if isinstance(value, _Cached)])
        body |= {"__qualname__": cls.__qualname__, "__slots__": slots, "_shape": shape}
        body |= {"__dataclass_fields__": _DataclassFields(shape), "__match_args__": () if kw_only else shape.names}
        new_class: Any = type(cls.__name__, (_Record,), body)
        shape.setters = [vars(new_class)[name].__set__ for name in shape.names]
        new_class.__init__ = _checked(_init_of(shape)) if "__post_init__" in body else _init_of(shape)
        return new_class  # type: ignore[no-any-return]

    return make


if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field
    from functools import cached_property as cached
else:
    record, field, cached = _record, _Field, _Cached
