# SPDX-License-Identifier: Apache-2.0
"""Specs that are checked without a sensor: nothing is refused that opens, and what opens on no machine is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.sensors.bank import Wanted
from hardcase_edge.sensors.specs import check_specs, kinds_of, open_sources

WANTED = [
    Wanted("x", ("x",), (False,)),
    Wanted("a:b", ("ab",), (False,)),
    Wanted("c=d", ("ab",), (False,)),
    Wanted("alsa", ("level",), (False,)),
    Wanted("vib", ("m", "d", "s", "r"), (False,) * 4, window=2),
    Wanted("inner", ("i",), (False,), is_inner=True),
]
NAMES = ("", "x=", "a:b=", "c=d=", "alsa=", "vib=", "inner=", "gone=")
SOURCES = (
    "none", "replay:all.csv", "replay:x.csv", "replay:gone.csv", "senml:all.csv", "mine_to_check:read",
    "mine_to_check:other", "mine_to_check:nosuch", "mine_gone:read", "thermal:", "thermal:0", "hwmon:gone",
    "alsa:default@99", "alsa:default@1/level", "alsa:hw:CARD=1,DEV=0", "bogus:", "bogus", ":", "", "replay:",
)  # fmt: skip
SPECS = st.lists(st.builds(str.__add__, st.sampled_from(NAMES), st.sampled_from(SOURCES)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    (folder / "all.csv").write_text("x,ab,level,vib[0],vib[1]\n1,2,3,4,5\n")
    (folder / "x.csv").write_text("x,unused\n1,2\n")
    (folder / "mine_to_check.py").write_text("def read(sensor): return 1.0\nother = read\n")
    zone = folder / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("x\n")
    (zone / "temp").write_text("40000\n")
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin/arecord").write_text("#!/bin/sh\n")
    (folder / "usr/bin/arecord").chmod(0o755)
    return folder


def opens(specs: list[str], here: Path) -> bool:
    try:
        open_sources(specs, WANTED, root=here).close()
    except InputError:
        return False
    return True


def passes(specs: list[str], here: Path) -> bool:
    try:
        check_specs(specs, WANTED, local=lambda name: str(here / name), folders=[here])
    except InputError:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(specs=SPECS)
@example(specs=["thermal:", "mine_to_check:read"])
@example(specs=["mine_to_check:read", "thermal:"])
@example(specs=["a:b=none", "thermal:0"])
def test_a_check_refuses_nothing_that_opens_and_passes_nothing_that_no_machine_opens(
    here: Path, specs: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.syspath_prepend(str(here))
        is_open, is_passed = opens(specs, here), passes(specs, here)
    if is_open:
        assert is_passed
        check_specs(specs)  # nor does the one that knows no bundle refuse it
    elif is_passed:  # a driver that finds nothing here may find it elsewhere
        assert kinds_of(specs) & {"thermal", "hwmon", "alsa"}
