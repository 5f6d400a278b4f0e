# SPDX-License-Identifier: Apache-2.0
"""hardcase.toml: what is wrong is told in one line, with what is near it; values arrive as they were written."""

from __future__ import annotations

import pytest

from hardcase_edge.errors import InputError
from hardcase_train.settings.config import DEFAULT_METHODS, Config, PolicyLimits, SensorConfig, limits_of
from hardcase_train.settings.toml import read_config

DATA = '[data]\nfile = "d.csv"\ntarget = "y"\n'


def config(folder, text):
    path = folder / "hardcase.toml"
    path.write_text(text)
    return read_config(path)


def test_every_key_arrives(tmp_path):
    found = config(
        tmp_path,
        """
        [data]
        file = "sub/d.csv"
        target = "y"
        split = "time"
        seed = 7
        drop = ["id", "raw.*"]
        dates = "parts"
        [cost]
        unit = "mJ"
        default_sensor = 2
        [cost.uplink]
        per_request = 100
        per_byte = 0.02
        [cost.cloud]
        per_request = 1.5
        [hpc]
        estimator = "RandomForestClassifier"
        [hpc.params]
        n_estimators = 10
        [policy]
        methods = ["static"]
        size = "large"
        effort = "thorough"
        [[sensor]]
        name = "p"
        features = ["p.*", "q"]
        cost = 3
        [[sensor]]
        name = "r"
        cost = 0
        """,
    )
    assert found == Config(
        file=tmp_path / "sub/d.csv",
        target="y",
        split="time",
        seed=7,
        drop=("id", "raw.*"),
        dates="parts",
        unit="mJ",
        default_sensor=2.0,
        per_request=100.0,
        per_byte=0.02,
        cloud_per_request=1.5,
        sensors=(
            SensorConfig(name="p", features=("p.*", "q"), cost=3.0),
            SensorConfig(name="r", features=("r",), cost=0.0),
        ),
        estimator="RandomForestClassifier",
        params={"n_estimators": 10},
        methods=("static",),
        size="large",
        effort="thorough",
    )


def test_the_limits_of_policies_arrive(tmp_path):
    found = config(tmp_path, DATA + "[policy]\nbudget = 5\nmax_ms = 0.5\nmax_bytes = 32768\nmax_forward = 0.1\n")
    assert found.limits == PolicyLimits(budget=5, max_ms=0.5, max_bytes=32768, max_forward=0.1)
    assert not config(tmp_path, DATA).limits


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("budget = -1", "[policy] budget is -1, a cost from 0 to 1e+09 is expected"),
        ("budget = nan", "[policy] budget is nan"),
        ('budget = "5"', "[policy] budget is '5', a cost from 0 to 1e+09 is expected"),
        ("max_bytes = 0", "[policy] max_bytes is 0, a whole number of bytes from 1"),
        ("max_bytes = 32.5", "[policy] max_bytes is 32.5, a whole number of bytes from 1 to 1099511627776 is expected"),
        ("max_forward = 5", "[policy] max_forward is 5, a share from 0 to 1"),
        ("max_msec = 5", "did you mean 'max_ms'?"),
    ],
)
def test_a_wrong_limit_is_one_line(tmp_path, line, said):
    with pytest.raises(InputError) as error:
        config(tmp_path, f"{DATA}[policy]\n{line}\n")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_limits_are_given_as_a_mapping_too():
    assert limits_of("policy", {"budget": 2.5}).micro_budget == 2_500_000
    with pytest.raises(InputError, match="unknown limit 'max_byte'; did you mean 'max_bytes'"):
        limits_of("policy", {"max_byte": 1})
    with pytest.raises(InputError, match="give a dict of limits"):
        limits_of("policy", 5)


def test_two_keys_are_enough(tmp_path):
    found = config(tmp_path, DATA)
    assert (found.split, found.seed, found.methods, found.size) == ("random", 0, DEFAULT_METHODS, "auto")
    assert (found.effort, found.drop, found.dates) == ("normal", (), "leave")
    assert read_config(tmp_path / "hardcase.toml", seed=5).seed == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", r"\[data\] has no file; add it", id="nothing"),
        pytest.param('[data]\nfile = "x.csv"', r"\[data\] has no target; add it", id="no-target"),
        pytest.param("data = [", "is not TOML", id="no-toml"),
        pytest.param("a = " + "[" * 100_000, "is not TOML", id="nested-too-deep"),
        pytest.param(DATA + "targte = 1", r"\[data\] has the unknown key 'targte'; did you mean 'target'", id="typo"),
        pytest.param("[polcy]", "the top level has the unknown key 'polcy'; did you mean 'policy'", id="section-typo"),
        pytest.param(DATA + "[cost.uplnk]", "'uplnk'; did you mean 'uplink'", id="subsection-typo"),
        pytest.param(DATA + '[[sensor]]\nname = "a"\ncots = 1', "'cots'; did you mean 'cost'", id="sensor-typo"),
        pytest.param(
            '[data]\ntarget = "y"\nfile = "a\\u0000b"', r"file is 'a\\x00b', the name of a file", id="no-name-of-a-file"
        ),
        pytest.param(
            DATA + 'target_unit = "K"', 'unit of values, not for task = "class"; remove it', id="unit-of-classes"
        ),
        pytest.param(DATA + "zzzz = 1", "'zzzz'; known keys are file, target, task, target_unit", id="nothing-near"),
        pytest.param(DATA + "[hpc]\nestimater = 'x'", "did you mean 'estimator'", id="hpc-typo"),
        pytest.param(DATA + "[policy]\nsize = 'larg'", "size is 'larg'; use one of auto, small, large, ebm", id="size"),
        pytest.param(DATA + "[policy]\nsize = 3", "size is 3; use one of auto", id="size-of-another-type"),
        pytest.param(
            DATA + "[policy]\neffort = 'quik'", "effort is 'quik'; use one of quick, normal, thorough", id="no-effort"
        ),
        pytest.param(DATA + "[policy]\neffort = 3", "effort is 3; use one of quick", id="effort-of-another-type"),
        pytest.param(
            DATA + "[policy]\nmethods = [3]",
            r"methods is \[3\], an array that names a method",
            id="method-of-another-type",
        ),
        pytest.param(DATA + "[policy]\nmethods = []", r"methods is \[\], an array that names a method", id="no-method"),
        pytest.param(DATA + "[policy]\nmethods = 'static'", "methods is 'static', an array", id="method-no-array"),
        pytest.param(DATA + "drop = 'id'", "drop is 'id', an array of column names is expected", id="drop-no-array"),
        pytest.param(DATA + "drop = [1]", r"\[data\] drop is \[1\], an array of column names", id="drop-of-numbers"),
        pytest.param(DATA + "drop = ['']", "an array of column names is expected", id="drop-of-nothing"),
        pytest.param(DATA + "dates = 'part'", r"\[data\] dates is 'part'; use one of leave, parts", id="no-such-dates"),
        pytest.param(DATA + "seed = -1", "seed is -1, a whole number from 0 to 4294967295", id="negative-seed"),
        pytest.param(DATA + "seed = 1.5", "seed is 1.5, a whole number", id="fractional-seed"),
        pytest.param(DATA + "seed = true", "seed is True, a whole number", id="true-as-a-number"),
        pytest.param('[data]\nfile = 3\ntarget = "y"', "file is 3, the name of a file", id="file-no-string"),
        pytest.param('[data]\nfile = "d.csv"\ntarget = ""', "target is '', a text of 1 to 200", id="empty-target"),
        pytest.param("data = 3", r"\[data\] is 3, a table", id="section-no-table"),
        pytest.param(DATA + "[sensor]\nname = 'a'", "an array is expected", id="sensor-no-array"),
        pytest.param("sensor = [1]\n" + DATA, "is 1, a table is expected", id="sensor-no-table"),
        pytest.param(DATA + "[cost]\ndefault_sensor = -1", "default_sensor is -1, a cost from 0", id="negative"),
        pytest.param(DATA + "[cost]\ndefault_sensor = nan", "default_sensor is nan, a cost from 0", id="not-a-number"),
        pytest.param(DATA + "[cost]\ndefault_sensor = inf", "default_sensor is inf, a cost from 0", id="infinite"),
        pytest.param(DATA + "[cost]\ndefault_sensor = true", "is True, a cost from 0", id="true-as-a-cost"),
        pytest.param(DATA + "[cost]\ndefault_sensor = '1'", "is '1', a cost from 0", id="text-as-a-cost"),
        pytest.param(DATA + f"[cost.uplink]\nper_byte = 1{'0' * 18}", "a cost from 0 to 1e.09", id="huge"),
        pytest.param(DATA + "[cost.cloud]\nper_request = -0.5", "per_request is -0.5", id="negative-cloud"),
        pytest.param(
            DATA + '[cost]\nunit = "Wh"\ndefault_sensor = 2.78e-7',
            r"\[cost\] default_sensor is 2.78e-07, which six decimals round to nothing: give all costs in a smaller",
            id="free-by-rounding",
        ),
        pytest.param(
            DATA + "[cost.uplink]\nper_byte = 4e-7", "per_byte is 4e-07, which six", id="byte-free-by-rounding"
        ),
        pytest.param(
            DATA + '[[sensor]]\nname = "a"\ncost = [0, 1, 1e-9]',
            "the cost of sensor 'a' is 1e-09, which six",
            id="sensor-free-by-rounding",
        ),
        pytest.param(DATA + '[cost]\nunit = ""', "unit is '', a text of 1 to 200 characters", id="no-unit"),
        pytest.param(DATA + '[[sensor]]\nname = "a"\ncost = -2', "cost of sensor 'a' is -2", id="negative-sensor"),
        pytest.param(DATA + '[[sensor]]\nname = "a"', "sensor 'a' has no cost", id="no-cost"),
        pytest.param(DATA + "[[sensor]]\ncost = 1", "sensor '\\?' has no name", id="no-name"),
        pytest.param(
            DATA + f'[[sensor]]\nname = "{"n" * 201}"\ncost = 1',
            "name of sensor 'nnn.*, a text of 1 to 200 characters is expected",
            id="long-name",
        ),
        pytest.param(
            DATA + '[[sensor]]\nname = "a"\ncost = 1\n' * 1 + '[[sensor]]\nname = "a"\ncost = 2',
            "sensor 'a' is declared twice; rename one",
            id="sensor-twice",
        ),
        pytest.param(
            DATA + '[[sensor]]\nname = "a"\ncost = 1\nfeatures = []',
            r"features of sensor 'a' (is|are) \[1?\], an array of column names is expected",
            id="no-features",
        ),
        pytest.param(
            DATA + '[[sensor]]\nname = "a"\ncost = 1\nfeatures = [1]',
            r"features of sensor 'a' (is|are) \[1?\], an array of column names is expected",
            id="number-as-feature",
        ),
        pytest.param(DATA + "[hpc.params]\nwhen = 2020-01-01", "must be numbers, strings", id="a-date-as-param"),
        pytest.param(DATA + "[hpc.params]\nC = nan", "must be numbers, strings", id="nan-as-param"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, text, said):
    with pytest.raises(InputError, match=said) as found:
        config(tmp_path, text)
    assert "hardcase.toml" in str(found.value)
    assert len(str(found.value)) < 400


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(InputError, match=r"No such file.*create one with: hardcase init"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path)
    (tmp_path / "big.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="larger than"):
        read_config(tmp_path / "big.toml")
    (tmp_path / "latin.toml").write_bytes(b'x = "\xe9"')
    with pytest.raises(InputError, match="is not TOML"):
        read_config(tmp_path / "latin.toml")


NUMBERS = {"4,000 digits": "9" * 4_000, "5,000 digits": "9" * 5_000, "6,000 hex digits": f"0x{'f' * 6_000}",
           "64 bits and one": str(2**63), "below": str(-(2**63) - 1)}  # fmt: skip
PLACES = (
    DATA + "seed = {}", '[cost]\ndefault_sensor = {}\n' + DATA, "[cost.uplink]\nper_byte = {}\n" + DATA,
    "[cost.errors]\nother = {}\n" + DATA, "[cost.errors.miss]\na = {}\n" + DATA, "[hpc.params]\nn = {}\n" + DATA,
    "[hpc.params]\nn = [[1, {}]]\n" + DATA, "[[sensor]]\nname = 's'\ncost = {}\n" + DATA,
    "[policy]\nmethods = [{}]\n" + DATA, "[data]\nfile = {}\n", "{} = 1\n" + DATA,
)  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS.keys())
@pytest.mark.parametrize("place", PLACES)
def test_a_number_of_any_length_is_one_line(tmp_path, place, number):
    with pytest.raises(InputError) as error:
        config(tmp_path, place.format(number))
    assert len(str(error.value).removeprefix(str(tmp_path))) < 500
    assert "\n" not in str(error.value)
