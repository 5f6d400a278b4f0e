# SPDX-License-Identifier: Apache-2.0
"""``hardcase_config.h``: the parts of the kernel that one policy needs, so that a firmware compiles no others."""

from __future__ import annotations

from string import Template

from hardcase_edge.kernel.image import Image
from hardcase_edge.program.definition import (
    TOURNAMENT,
    Affine,
    Answer,
    Branch,
    Forward,
    Network,
    Polynomial,
    Select,
    Stack,
)
from hardcase_edge.program.kinds import answers_number

CONFIG = Template("""\
/* The parts of the kernel that this policy needs, made by hardcase; hardcase.h says what they are. For two policies in
 * one firmware, name the parts of both. */
#ifndef HARDCASE_CONFIG_H
#define HARDCASE_CONFIG_H

#define HC_PARTS ($parts)

#endif
""")
OWN_WALKS = range(3, 7)  # depths of trees for which the kernel has a specialised walk


def config_header(image: Image) -> str:
    """The text of ``hardcase_config.h``, for a packed image."""
    return CONFIG.substitute(parts=" | ".join(parts_of(image)) or "0u")


def parts_of(image: Image) -> list[str]:
    """Names of the kernel parts that an image needs, as in ``hardcase.h``."""
    p, cells = image.p, image.cells.columns
    tables = [e for k, e in image.ensembles.items() if k not in image.inlined]
    heaps = {(g.depth, g.width) for e in tables if e.is_small for g in e.groups if g.is_heap}
    specialised = {depth for depth, width in heaps if width == 1 and depth in OWN_WALKS}
    needed = {
        "HC_POLYNOMIALS": any(isinstance(s, Polynomial) for s in p.scorers),
        "HC_STACKS": any(isinstance(s, Stack) for s in p.scorers),
        "HC_NETWORKS": any(isinstance(s, Network) for s in p.scorers),
        "HC_WIDE": any(not e.is_small for e in image.ensembles.values()),
        "HC_POINTERS": any(not g.is_heap for e in tables for g in e.groups),
        "HC_INLINE": bool(image.inlined),
        "HC_AFFINE": any(isinstance(p.columns[cell.column].rule, Affine) for cell in cells),
        "HC_F64": any(f.dtype == "f64" for f in p.features),
        "HC_BRANCHES": any(isinstance(n, Branch) for n in p.nodes),
        "HC_TOURNAMENTS": any(isinstance(n, Branch) and n.rule == TOURNAMENT for n in p.nodes),
        "HC_SELECTS": any(isinstance(n, Select) for n in p.nodes),
        "HC_VALUES": any(isinstance(n, Answer) and answers_number(n.kind) for n in p.nodes),
        "HC_STARTS": image.start_cost > 0,
        "HC_FORWARDS": any(isinstance(n, Forward) for n in p.nodes),
        **{f"HC_WALK_{depth}": depth in specialised for depth in OWN_WALKS},
        "HC_WALK_ANY": bool(heaps - {(depth, 1) for depth in specialised}),
    }
    return [name for name, is_needed in needed.items() if is_needed]
