# SPDX-License-Identifier: Apache-2.0
"""Drivers of other packages: found by the hook where no module has their name, and wrong ones are said in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hardcase_edge.drivers.channel import choose, driver_of, is_driver
from hardcase_edge.errors import InputError
from hardcase_edge.sensors.bank import Wanted
from hardcase_edge.sensors.driven import Driven
from hardcase_edge.sensors.specs import kinds_of
from tests.helpers.hooks import install
from tests.helpers.places import ROOT

SOURCE = (ROOT / "examples" / "plugin" / "hardcase_loadavg.py").read_text(encoding="utf-8")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's driver is installed."""
    install(tmp_path, monkeypatch, "hardcase_loadavg", "drivers", {"load": "hardcase_loadavg"}, SOURCE)


@pytest.mark.usefixtures("load")
def test_a_driver_of_another_package_reads_its_device() -> None:
    assert is_driver("load")
    assert kinds_of(["busy=load:5", "my_sensors:read"]) == {"load"}
    device, (channel,) = choose("load", "5", ["load"], "/")
    assert (device.name, channel.unit) == ("5", "/")
    assert channel.read() == pytest.approx(os.getloadavg()[1], abs=0.5)
    wanted = Wanted("busy", ("load",), ())
    source = Driven("load", "1", "/")
    assert source.lacks(wanted) == ""
    assert len(source.read("busy")) == 1
    assert "use 1, 5, 15" in Driven("load", "7", "/").lacks(wanted)


@pytest.mark.usefixtures("load")
def test_a_module_or_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "load.py").write_text("")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert not is_driver("load")
    assert not is_driver("json")
    assert not is_driver("")


def test_a_driver_that_cannot_be_loaded_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "hooks_a", "drivers", {"broken": "hooks_a"}, "1 / 0")
    with pytest.raises(InputError, match=r"'broken' of hooks_a \(hooks_a\) cannot be loaded \(division by zero\)"):
        driver_of("broken")
    install(tmp_path, monkeypatch, "hooks_b", "drivers", {"half": "hooks_b"}, "NOUN = 'sensor'")
    with pytest.raises(InputError, match=r"'half' of hooks_b \(hooks_b\) has no 'find'; update or uninstall it"):
        driver_of("half")
