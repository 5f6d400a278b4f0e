# SPDX-License-Identifier: Apache-2.0
"""``model.h`` and ``sensors.h``: the image as a constant table, names of sensors and classes, and driver stubs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from string import Template

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import Value
from hardcase_edge.kernel.image import Image
from hardcase_edge.program.definition import Program, Sensor
from hardcase_edge.program.readings import DTYPES, Reading, normalise

from .config import parts_of
from .names import array, identifiers, literal

MODEL = Template("""\
/* A policy as constant tables for hardcase.c, made by hardcase from the bundle with this SHA-256:
 * $sha256
 * Tables are static: include this file in one of your source files. */
#ifndef MODEL_H
#define MODEL_H

#include "hardcase.h"
#include "hardcase_config.h"

#if (($parts) & ~HC_PARTS) != 0
#error "hardcase_config.h is not this policy's: it lacks parts of the kernel"
#endif

#define MODEL_SESSION_BYTES $session_bytes
#define MODEL_N_SENSORS $n_sensors
#define MODEL_N_CLASSES $n_classes /* 0: the policy answers values */

enum model_sensor {
$sensors
};

/* One struct for the readings of each sensor; a missing reading is INT32_MIN or NAN. */
$structs
${codes}typedef union model_readings {
$members
} model_readings;

$classes
/* The image: $n_bytes bytes$place. */
static ${constant}uint64_t model[] = {
$words
};

#endif
""")

CODES = Template("""\
/* Codes of the readings that are texts, such as $example; another text is a missing reading. */
enum model_code {
$codes
};

""")

CLASSES = Template("""\
static const char *const model_classes[MODEL_N_CLASSES] = {
$names
};

static inline const char *model_label(int64_t result)
{
    return result >= 0 && result < MODEL_N_CLASSES ? model_classes[result] : "";
}
""")

VALUE = Template("""\
/* A result is a value times 2^MODEL_VALUE_STEPS, rounded. Where there is no floating point, shift it. */
#define MODEL_VALUE_STEPS $steps
#define MODEL_VALUE_UNIT $unit

static inline double model_value(int64_t result)
{
    return (double)result * $factor;
}

static inline const char *model_label(int64_t result)
{
    (void)result;
    return $label;
}
""")

UNSCALED = """\
static inline const char *model_label(int64_t result)
{
    (void)result;
    return "value";
}
"""

SENSORS = Template("""\
/* Your sensors: fill r with this sensor's readings and return 1, or return 0 if it failed.
 * As exported, it gives the readings of the first golden case. */
#include <math.h>

#include "model.h"

static int read_sensor(int sensor, model_readings *r)
{
    (void)r;
    switch (sensor) {
$cases
    default:
        return 0;
    }
}
""")


class Names:
    """Identifiers of a program's sensors and features."""

    def __init__(self, program: Program, manifest: Manifest) -> None:
        self.enums = [e.upper() for e in identifiers("MODEL_SENSOR_", manifest.sensors)]
        self.members = identifiers("of_", manifest.sensors)
        fields = [identifiers("x_", [manifest.features[f] for f in s.features]) for s in program.sensors]
        self.fields = [
            list(zip(s.features, names, strict=True)) for s, names in zip(program.sensors, fields, strict=True)
        ]


def model_header(image: Image, data: bytes, manifest: Manifest, sha256: str) -> str:
    """The text of ``model.h``.

    Parameters
    ----------
    image, data : the program's image and its bytes, a multiple of 8
    sha256 : of the bundle, in hex
    """
    program = image.p
    names = Names(program, manifest)
    labels = [literal(str(c)) for c in manifest.classes]
    return MODEL.substitute(
        sha256=sha256,
        parts=" | ".join(parts_of(image)) or "0u",
        session_bytes=image.session_bytes,
        n_sensors=len(program.sensors),
        n_classes=program.n_classes,
        sensors="\n".join(f"    {name} = {k}," for k, name in enumerate(names.enums)) or "    MODEL_NO_SENSOR = -1",
        structs="\n".join(_struct(m, f, program) for m, f in zip(names.members, names.fields, strict=True)),
        codes=_codes(manifest),
        members="\n".join(f"    model_{m} {m};" for m in names.members) or "    char none;",
        classes=CLASSES.substitute(names=array(labels)) if labels else _values(manifest.value),
        n_bytes=len(data),
        place=", in RAM, because its thresholds move" if image.moved else "",
        constant="" if image.moved else "const ",
        words=array(words(data)),
    )


def _values(value: Value | None) -> str:
    """How results become values; an older bundle does not say it."""
    if value is None:
        return UNSCALED
    label = f"steps of 2^{-value.steps} {value.unit}".rstrip()
    return VALUE.substitute(
        steps=value.steps, unit=literal(value.unit), factor=repr(2.0**-value.steps), label=literal(label)
    )


def sensors_header(program: Program, manifest: Manifest, readings: Sequence[Reading]) -> str:
    """The text of ``sensors.h``: stubs that give these readings, one per feature, until the user writes drivers."""
    names, values = Names(program, manifest), rounded_to_dtypes(program, readings)
    cases = []
    for enum, member, fields in zip(names.enums, names.members, names.fields, strict=True):
        cases.append(f"    case {enum}:")
        for f, field in fields:
            cases.append(f"        r->{member}.{field} = {_constant(values[f], program.features[f].dtype)};")
        cases.append("        return 1;")
    return SENSORS.substitute(cases="\n".join(cases))


def words(data: bytes) -> list[str]:
    """Bytes as little-endian 64-bit constants; the number of bytes must be a multiple of 8."""
    return [f"0x{int.from_bytes(data[k : k + 8], 'little'):016x}u" for k in range(0, len(data), 8)]


def _codes(manifest: Manifest) -> str:
    """Constants for the codes of all categories; empty if there is none."""
    codes = [(f"{name} {text}", k) for name, texts in manifest.categories.items() for k, text in enumerate(texts)]
    if not codes:
        return ""
    names = [name.upper() for name in identifiers("MODEL_CODE_", [text for text, _ in codes])]
    lines = [f"    {name} = {k}," for name, (_, k) in zip(names, codes, strict=True)]
    return CODES.substitute(example=names[0], codes="\n".join(lines))


def _struct(member: str, fields: Sequence[tuple[int, str]], program: Program) -> str:
    lines = [f"    {DTYPES[program.features[f].dtype].c} {field};" for f, field in fields] or ["    char none;"]
    return "\n".join([f"typedef struct model_{member} {{", *lines, f"}} model_{member};"])


def _constant(value: float | int, dtype: str) -> str:
    if dtype == "i32":
        return "INT32_MIN" if value == -(2**31) else str(value)
    if value != value:
        return "NAN"
    return f"{float(value)!r}f" if dtype == "f32" else repr(float(value))


# Readings in the kernel's byte layout: for each sensor a C struct of its features in their declared types.


def rounded_to_dtypes(program: Program, readings: Sequence[Reading]) -> list[float | int]:
    """One reading per feature as its type holds it; the type's mark for missing replaces None and other values."""
    dtypes = [f.dtype for f in program.features]
    return [DTYPES[t].missing if x is None else x for x, t in zip(normalise(readings, dtypes), dtypes, strict=True)]


def reading_offsets(program: Program) -> list[int]:
    """The offset of each sensor's readings in bytes when all are packed; the last item is the total length."""
    offsets = [0]
    for sensor in program.sensors:
        offsets.append(offsets[-1] + struct.calcsize(_layout(program, sensor)))
    return offsets


def pack_readings(program: Program, readings: Sequence[Reading]) -> bytes:
    """The structs of all sensors, one after another, from one reading per feature, None for missing."""
    values = rounded_to_dtypes(program, readings)
    return b"".join(struct.pack(_layout(program, s), *[values[f] for f in s.features]) for s in program.sensors)


def _layout(program: Program, sensor: Sensor) -> str:
    """The format for ``struct``: fields aligned as C compilers align them, padded to a multiple of 8 bytes."""
    layout, size = "<", 0
    for f in sensor.features:
        dtype = DTYPES[program.features[f].dtype]
        gap = -size % dtype.size
        layout += f"{gap}x{dtype.code}"
        size += gap + dtype.size
    return f"{layout}{-size % 8}x"
