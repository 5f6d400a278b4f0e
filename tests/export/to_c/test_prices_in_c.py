# SPDX-License-Identifier: Apache-2.0
"""The C export of a bundle with prices: its image lies in RAM, and its thresholds go with the price."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hardcase_edge.bundle.prices import LEVEL, Prices
from hardcase_export.to_c.folder import write_c
from tests.helpers.edge.device import EASY, HARD, make_loaded
from tests.helpers.edge.machines import STRICT
from tests.helpers.tools import need

PRICES = Prices((1,), ((900,), (256,), (0,)), (300.0, 30.0, 1.0), (0.9, 0.1, 0.0), 1)
MAIN = f"""
#include <stdio.h>
#include "model.h"
#include "prices.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

static int route(float x)
{{
    hc_session *s = &memory.session;
    hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
    while (hc_next(s) == HC_NEED_SENSORS) hc_feed(s, hc_wanted(s), &x);
    return s->route;
}}

int main(void)
{{
    static const int32_t at[] = {{0, {LEVEL}, {2 * LEVEL}, {LEVEL * 3 // 2}, 1}};
    for (int k = 0; k < 5; k++) {{
        if (hc_set_price(model, &model_prices, at[k]) != 0) return 1;
        printf("%d%d", route({HARD}f), route({EASY}f));
    }}
    return MODEL_WORST_COST < 1;
}}
"""


def test_a_policy_in_c_goes_by_the_price_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("cc")
    monkeypatch.setattr("hardcase_export.to_c.folder.COMPILER", "no-such-compiler")  # no sizes for other machines
    write_c(make_loaded(prices=PRICES), tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    sources = ["main.c", "hardcase.c", "hardcase_servo.c", "-o", "main"]
    subprocess.run(["cc", *STRICT, *sources], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    degraded, local = "2", "0"
    assert done.stdout == degraded * 2 + degraded + local + local * 2 + degraded + local + degraded * 2
