# SPDX-License-Identifier: Apache-2.0
"""What firmware fills itself: ``memory.h`` remembers a stream from window to window, ``coin.h`` draws."""

from __future__ import annotations

from string import Template

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import Program
from hardcase_edge.stream.coin import BITS, Coin
from hardcase_edge.stream.layout import Layout
from hardcase_edge.stream.memory import MOST_WINDOWS

from .header import Names

HEADER = Template("""\
/* The memory of a stream, which the sensor $enum reads: begin each window, show what was read, end with the answer.
 *
 *     model_memory_forget(&memory);              once, and after a pause of unknown length
 *     model_memory_begin(&memory, 1);            windows since the last one: 1, or more if some were missed
 *     model_memory_see(&memory, sensor, &r);     after each sensor that was read, before it is fed
 *     model_memory_read(&memory, &r);            in read_sensor, for $enum
 *     model_memory_end(&memory, session.result); when the window has its answer
 */
#ifndef MODEL_MEMORY_H
#define MODEL_MEMORY_H

#include <math.h>
#include <string.h>

#include "model.h"

typedef struct model_memory_state {
    int32_t held, since[$n_since];
    uint8_t is_read[$n_since];
    union model_memory_readings {
        struct {
$fields
        } f;
        char none;
    } now, then;
} model_memory_state;

static inline void model_memory_nothing(union model_memory_readings *r)
{
    r->none = 0;
$nothing}

static inline void model_memory_forget(model_memory_state *m)
{
    memset(m, 0, sizeof *m);
    m->held = INT32_MIN;
    for (int k = 0; k < $n_since; k++)
        m->since[k] = INT32_MIN;
    model_memory_nothing(&m->now);
    model_memory_nothing(&m->then);
}

static inline void model_memory_begin(model_memory_state *m, int32_t windows)
{
    for (int k = 0; k < $n_since; k++) {
        m->is_read[k] = 0;
        if (m->since[k] != INT32_MIN)
            m->since[k] = windows > $most - m->since[k] ? $most : m->since[k] + windows;
    }
    model_memory_nothing(&m->now);
}

/* A sensor that misses a reading which must be there has failed, and is not noted. */
static inline void model_memory_see(model_memory_state *m, int sensor, const model_readings *r)
{
    (void)r;
    switch (sensor) {
$see
    default:
        break;
    }
}

static inline void model_memory_read(const model_memory_state *m, model_readings *r)
{
$read
}

static inline void model_memory_end(model_memory_state *m, int64_t result)
{
    int is_whole = 1;
    m->held = (int32_t)result;
    for (int k = 0; k < $n_since; k++) {
        if (m->is_read[k])
            m->since[k] = 0;
        else if (k < $n_counted)
            is_whole = 0;
    }
    if (is_whole)
        m->then = m->now;
}

#endif
""")
COIN = Template("""\
/* The coin of a policy that mixes two: the sensor $enum reads one draw of SplitMix64 in each decision.
 *
 *     static uint64_t coin;             set once, to a seed that no other device and no other start has
 *     model_coin_read(&coin, &r);       in read_sensor, for $enum
 */
#ifndef MODEL_COIN_H
#define MODEL_COIN_H

#include "model.h"

static inline void model_coin_read(uint64_t *state, model_readings *r)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    r->$member.$field = (int32_t)((z ^ z >> 31) >> $shift);
}

#endif
""")
TYPES = {"i32": "int32_t", "f32": "float", "f64": "double"}
MISSING = {"i32": "INT32_MIN", "f32": "NAN", "f64": "NAN"}


def coin_header(program: Program, manifest: Manifest, coin: Coin) -> str:
    """The text of ``coin.h``; it draws as ``hardcase_edge.stream.coin.Toss`` does."""
    names = Names(program, manifest)
    ((_, field),) = names.fields[coin.sensor]
    return COIN.substitute(
        enum=names.enums[coin.sensor], member=names.members[coin.sensor], field=field, shift=64 - BITS
    )


def memory_header(program: Program, manifest: Manifest, layout: Layout) -> str:
    """The text of ``memory.h``; it has the bits of ``hardcase_edge.stream.memory.Memory``."""
    names = Names(program, manifest)
    field = {f: f"of{f}" for _, f in layout.change}
    at = {f: (names.members[s], name) for s, fields in enumerate(names.fields) for f, name in fields}
    own = names.members[layout.sensor]
    dtype = [f.dtype for f in program.features]

    def target(feature: int) -> str:
        return f"r->{own}.{at[feature][1]}"

    read = [f"    {target(f)} = m->held;" for f in layout.held]
    read += [f"    {target(f)} = m->since[{k}];" for k, (f, _) in enumerate(layout.since)]
    for f, of in layout.change:
        now, then = f"m->now.f.{field[of]}", f"m->then.f.{field[of]}"
        if dtype[of] == "i32":
            moved = f"(int64_t){now} - {then}"
            some = f"{moved} > INT32_MAX ? INT32_MAX : {moved} < -INT32_MAX ? -INT32_MAX : (int32_t)({moved})"
            read.append(f"    {target(f)} = {now} == INT32_MIN || {then} == INT32_MIN ? INT32_MIN : {some};")
        else:
            read.append(f"    {target(f)} = isfinite({now} - {then}) ? {now} - {then} : {MISSING[dtype[of]]};")
    fields = [f"            {TYPES[dtype[f]]} {name};" for f, name in field.items()] or ["            char none;"]
    return HEADER.substitute(
        enum=names.enums[layout.sensor],
        n_since=max(len(layout.since), 1),
        n_counted=len(layout.since),
        most=MOST_WINDOWS,
        fields="\n".join(fields),
        nothing="".join(f"    r->f.{name} = {MISSING[dtype[f]]};\n" for f, name in field.items()),
        see="\n".join(_seen(program, layout, names, field)),
        read="\n".join(read),
    )


def _seen(program: Program, layout: Layout, names: Names, field: dict[int, str]) -> list[str]:
    """The cases of the sensors that are watched."""
    place = {sensor: k for k, (_, sensor) in enumerate(layout.since)}
    lines = []
    for sensor in sorted({*place, *(program.sensor_of[f] for f in field)}):
        lines.append(f"    case {names.enums[sensor]}:")
        reading = {f: f"r->{names.members[sensor]}.{name}" for f, name in names.fields[sensor]}
        for f, value in reading.items():
            if not program.features[f].nullable:
                is_i32 = program.features[f].dtype == "i32"
                lines.append(f"        if ({f'{value} == INT32_MIN' if is_i32 else f'!isfinite({value})'})")
                lines.append("            break;")
        lines += [f"        m->now.f.{field[f]} = {value};" for f, value in reading.items() if f in field]
        lines += [f"        m->is_read[{place[sensor]}] = 1;"] if sensor in place else []
        lines.append("        break;")
    return lines
