"""Records: what a device needs of ``dataclasses``, which takes a fifth of its start and a tenth of its memory.

``record`` takes ``dataclass``'s words and makes what ``dataclass(frozen=True, slots=True)`` would: values that compare,
hash, print, copy and pickle by their fields. Where that one compiles functions for each class, these share theirs. To
a type checker they are dataclasses, and to ``dataclasses.replace``, ``fields`` and ``asdict``, too: a class says its
fields once somebody asks, which nobody does on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["cached", "field", "record"]

_NONE: Any = object()


class _Field:
    """What is said of one field."""

    def __init__(self, *, default: Any = _NONE, default_factory: Any = None, repr: bool = True) -> None:
        self.may_be_left_out = default is not _NONE or default_factory is not None
        self.make = default_factory or (lambda: default)
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
    """All fields of one class, in order, and how to reach them."""

    def __init__(self, fields: dict[str, _Field], kw_only: bool) -> None:
        self.fields = fields
        self.names = tuple(fields)
        self.kw_only = kw_only
        self.count = -1 if kw_only else len(fields)  # of values without a name, where they are all
        self.puts: list[Callable[[object, object], None]] = []
        self.values_of = attrgetter(*fields)

    def complete(self, cls: type, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All values in order, from those given by place and by name, and the defaults."""
        if len(values) > max(self.count, 0):
            raise TypeError(f"{cls.__name__} takes {max(self.count, 0)} values without a name, not {len(values)}")
        out = list(values)
        for name in self.names[len(values) :]:
            if name in named:
                out.append(named.pop(name))
            elif self.fields[name].may_be_left_out:
                out.append(self.fields[name].make())
            else:
                raise TypeError(f"{cls.__name__} needs a value for {name}")
        if named:
            raise TypeError(f"{cls.__name__} has no field {next(iter(named))}, or has its value already")
        return tuple(out)


class _DataclassFields:
    """A class's ``__dataclass_fields__``, made when it is first looked at."""

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        fields: list[Any] = []
        for name, said in self._shape.fields.items():
            given: dict[str, Any] = {"default_factory": said.make} if said.may_be_left_out else {}
            made = dataclasses.field(repr=said.is_shown, kw_only=self._shape.kw_only, **given)
            fields.append((name, owner.__annotations__[name], made))
        twin: Any = dataclasses.make_dataclass(owner.__name__, fields)
        owner.__dataclass_fields__ = twin.__dataclass_fields__
        return twin.__dataclass_fields__


class _Record:
    """What all records do."""

    __slots__ = ()
    _shape: _Shape

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        of = self._shape.values_of
        return bool(of(self) == of(other))

    def __hash__(self) -> int:
        return hash(self._shape.values_of(self))

    def __repr__(self) -> str:
        shown = [name for name, said in self._shape.fields.items() if said.is_shown]
        return f"{self.__class__.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in shown])})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    def __getstate__(self) -> list[Any]:
        return [getattr(self, name) for name in self._shape.names]

    def __setstate__(self, state: list[Any]) -> None:
        for put, value in zip(self._shape.puts, state, strict=True):
            put(self, value)


def _init_of(shape: _Shape) -> Callable[..., None]:
    count, puts = shape.count, shape.puts

    def init(self: Any, *values: Any, **named: Any) -> None:
        if named or len(values) != count:
            values = shape.complete(self.__class__, values, named)
        for put, value in zip(puts, values):  # noqa: B905 - as many, and decisions are made of these
            put(self, value)

    return init


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    def init_and_check(self: Any, *values: Any, **named: Any) -> None:
        init(self, *values, **named)
        self.__post_init__()

    return init_and_check


def _record(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
    assert (frozen, slots) == (True, True), "a record is both"

    def make(cls: type) -> type:
        body = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        fields = {name: body.pop(name, _NONE) for name in cls.__annotations__}
        shape = _Shape({k: v if isinstance(v, _Field) else _Field(default=v) for k, v in fields.items()}, kw_only)
        slots = shape.names + tuple([value.slot for value in body.values() if isinstance(value, _Cached)])
        body |= {"__qualname__": cls.__qualname__, "__slots__": slots, "_shape": shape}
        body |= {"__dataclass_fields__": _DataclassFields(shape), "__match_args__": () if kw_only else shape.names}
        made: Any = type(cls.__name__, (_Record,), body)
        shape.puts = [vars(made)[name].__set__ for name in shape.names]
        made.__init__ = _checked(_init_of(shape)) if "__post_init__" in body else _init_of(shape)
        return made  # type: ignore[no-any-return]

    return make


if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field
    from functools import cached_property as cached
else:
    record, field, cached = _record, _Field, _Cached
