"""``hardcase_config.h``: what of the kernel one policy needs, so that a firmware carries no more."""

from __future__ import annotations

from collections.abc import Collection
from string import Template

from hardcase_edge.program import Polynomial, Program, Stack

__all__ = ["config_header"]

CONFIG = Template("""\
/* What of the kernel this policy needs, made by hardcase. */
#ifndef HARDCASE_CONFIG_H
#define HARDCASE_CONFIG_H

$switches

#endif
""")


def config_header(program: Program, inlined: Collection[int]) -> str:
    """The text of ``hardcase_config.h``."""
    switches = {
        "POLYNOMIALS": any(isinstance(s, Polynomial) for s in program.scorers),
        "STACKS": any(isinstance(s, Stack) for s in program.scorers),
        "INLINE": bool(inlined),
    }
    return CONFIG.substitute(switches="\n".join(f"#define HC_{name} {int(is_on)}" for name, is_on in switches.items()))
