# SPDX-License-Identifier: Apache-2.0
"""``prices.h``: the table by which a microcontroller's servo moves the thresholds of its policy."""

from __future__ import annotations

from string import Template

from hardcase_edge.bundle.prices import Prices

from .names import array

__all__ = ["prices_header"]

PRICES = Template("""\
/* The prices of model.h, for hardcase_servo.c: $n_levels levels of $n_nodes thresholds, which spend $most to $least
 * units a decision in the mean on validation rows. */
#ifndef PRICES_H
#define PRICES_H

#include "hardcase_servo.h"

#define MODEL_WORST_COST INT64_C($worst) /* of a decision: the least burst */

static const uint32_t model_price_nodes[] = {
$nodes
};

static const int64_t model_price_thresholds[] = {
$thresholds
};

static const hc_prices model_prices = {model_price_nodes, model_price_thresholds, $n_nodes, $n_levels, $shipped};

#endif
""")


def prices_header(prices: Prices, worst_cost: int) -> str:
    """The text of ``prices.h``; ``worst_cost`` in micro-units."""
    return PRICES.substitute(
        n_levels=len(prices.levels),
        n_nodes=len(prices.nodes),
        most=f"{prices.costs[0]:g}",
        least=f"{prices.costs[-1]:g}",
        worst=max(worst_cost, 1),
        nodes=array([f"{node}u" for node in prices.nodes]),
        thresholds=array([f"INT64_C({t})" for level in prices.levels for t in level]),
        shipped=prices.shipped,
    )
