# SPDX-License-Identifier: Apache-2.0
"""A module of Zephyr and an Arduino library: their forms, and decisions on an emulated Cortex-M3, with stand-ins."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hardcase.cli import main
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.golden import run_case
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.program.readings import Reading
from hardcase_edge.session.session import Machine
from hardcase_export.to_c.boards import BOARDS, COMPILER, EMULATOR
from hardcase_export.to_c.frameworks import arduino_files, zephyr_files
from tests.golden.make_golden import cases_of, golden_program, manifest_of
from tests.helpers.tools import need

STUB = Path(__file__).parent / "stub"
M3 = BOARDS[1]
FLAGS = [*M3.cpu, "-O1", "-Wall", "-Wextra", "-Werror", "-ffunction-sections", f"-I{STUB}"]
FEATURES = ("temperature", "humidity", "air pressure", "voltage")
# The keys that Zephyr's documentation has: of module.yml (modules), and of Twister's files (twister, test and sample).
MODULE = {"name": str, "build": {"cmake": str, "kconfig": str}, "samples": [str], "tests": [str]}
TEST = {"tags": str, "integration_platforms": [str], "harness": str,
        "harness_config": {"type": str, "regex": [str]}}  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    program = golden_program()
    manifest = replace(manifest_of(program), features=FEATURES, sensors=("Out*/side", "room", "supply"))
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program, cases_of(program, 64))))


@pytest.fixture(scope="module")
def zephyr(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(zephyr_files(loaded), tmp_path_factory.mktemp("zephyr"))


@pytest.fixture(scope="module")
def arduino(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(arduino_files(loaded), tmp_path_factory.mktemp("arduino"))


def written(files: dict[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def kernel(zephyr: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled kernel, which both have."""
    return compiled(zephyr / "src/hardcase.c", tmp_path_factory.mktemp("kernel"))


def compiled(source: Path, out: Path, *includes: Path) -> Path:
    need(COMPILER)
    is_sketch = source.suffix == ".ino"
    form = ["-std=c++11", "-fno-exceptions", "-x", "c++", "-include", "Arduino.h"] if is_sketch else ["-std=gnu99"]
    made = out / f"{source.stem}.o"
    folders = [f"-I{folder}" for folder in includes]
    compiler = COMPILER.replace("gcc", "g++") if is_sketch else COMPILER
    command = [compiler, *FLAGS, *folders, *form, "-c", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return made


def emulated(out: Path, *objects: Path) -> str:
    """What the program of these objects prints on the emulated board."""
    need(COMPILER, EMULATOR)
    linked = [COMPILER, *M3.cpu, *map(str, objects), *M3.link(), "-o", str(out / "x.elf")]
    subprocess.run(linked, check=True, capture_output=True, timeout=120)
    return subprocess.run(
        M3.emulate(out / "x.elf"), check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    ).stdout


def fits(value: object, form: object) -> bool:
    """Whether a value of YAML has only keys and types of this form."""
    if isinstance(form, dict):
        return isinstance(value, dict) and all(k in form and fits(v, form[k]) for k, v in value.items())
    if isinstance(form, list):
        return isinstance(value, list) and bool(value) and all(fits(v, form[0]) for v in value)
    return isinstance(value, form)  # type: ignore[arg-type]


def test_the_files_of_a_module_have_the_keys_that_zephyr_documents(zephyr: Path) -> None:
    module = yaml.safe_load((zephyr / "zephyr/module.yml").read_text())
    assert fits(module, MODULE)
    assert (zephyr / module["build"]["cmake"] / "CMakeLists.txt").is_file()
    options = re.findall(r"^config (\w+)$", (zephyr / module["build"]["kconfig"]).read_text(), re.M)
    for folder, name in (("samples", "sample.yaml"), ("tests", "testcase.yaml")):
        assert module[folder] == [folder]
        (path,) = (zephyr / folder).rglob(name)
        found = yaml.safe_load(path.read_text())
        assert found.get("sample", {}).keys() == ({"name", "description"} if folder == "samples" else set())
        assert all(re.fullmatch(r"[a-z.]+", key) and fits(test, TEST) for key, test in found["tests"].items())
        set_there = re.findall(r"^CONFIG_(\w+)=y$", (path.parent / "prj.conf").read_text(), re.M)
        assert set(options) <= set(set_there) <= {*options, "SENSOR"}
        assert "find_package(Zephyr" in (path.parent / "CMakeLists.txt").read_text()


def test_a_module_decides_its_golden_cases_as_twister_expects(zephyr: Path, kernel: Path, tmp_path: Path) -> None:
    said = emulated(tmp_path, compiled(zephyr / "tests/golden/src/main.c", tmp_path, zephyr / "src"), kernel)
    (test,) = yaml.safe_load((zephyr / "tests/golden/testcase.yaml").read_text())["tests"].values()
    assert re.search(test["harness_config"]["regex"][0], said)
    assert said == "64 of 64 golden cases are right\n"


def decided(loaded: Loaded, readings: tuple[Reading, ...], failed: tuple[int, ...]) -> tuple[list[str], str]:
    """What Python asks for, and what it answers alone."""
    case = replace(loaded.bundle.golden[0], readings=readings, failed=failed, budget=None, item_size=1, cloud=False)
    made = run_case(Machine(loaded.bundle.program), replace(case, reply=None))
    k = int(made.result)
    answer = f"{loaded.manifest.classes[k]} ({k}), {made.confidence} of 10000 sure"
    return [str(s) for s in made.sensors], answer


def test_the_sample_asks_one_sensor_at_a_time_and_decides_as_python(
    loaded: Loaded, zephyr: Path, kernel: Path, tmp_path: Path
) -> None:
    rows, expected = [], []
    for case in loaded.bundle.golden:  # with readings that a sensor_value holds
        quarters = [
            "MISSING" if x is None else int(x * 4) // 4 * 4 if f.dtype == "i32" else int(x * 4)
            for x, f in zip(case.readings, loaded.bundle.program.features, strict=True)
        ]
        readings = tuple(None if isinstance(q, str) else q / 4 for q in quarters)
        expected.append(decided(loaded, readings, case.failed))
        fails = [int(s in case.failed) for s in range(3)]
        rows.append(f"{{{{{', '.join(map(str, quarters))}}}, {{{', '.join(map(str, fails))}}}}},\n")
    devices = [
        f"static const struct device device_hardcase_{alias} = {{{k}}};\n"
        for k, alias in enumerate(("out_side", "room", "supply"))
    ]
    (tmp_path / "devices.h").write_text("".join(devices))
    (tmp_path / "rows.h").write_text(
        f"#define N_ROWS {len(rows)}\n#define MISSING INT32_MIN\n"
        f"static const struct {{\n    int32_t quarters[4];\n    int fails[3];\n}} rows[] = {{\n{''.join(rows)}}};\n"
    )
    sources = [zephyr / "samples/decide/src/main.c", STUB / "board.c"]
    said = emulated(tmp_path, *(compiled(source, tmp_path, zephyr / "src", tmp_path) for source in sources), kernel)
    found = [re.fullmatch(r"((?:\d )*)(.*)", line) for line in said.splitlines()]
    assert [(sorted(m[1].split()), m[2]) for m in found if m] == expected
    text = (zephyr / "samples/decide/src/sensors.h").read_text()
    assert re.findall(r"SENSOR_CHAN_(\w+)\)", text) == ["AMBIENT_TEMP", "HUMIDITY", "PRESS", "VOLTAGE"]
    assert "such as hardcase-out-side, and" in text


def test_a_library_has_the_properties_that_arduino_documents(arduino: Path) -> None:
    lines = (arduino / "library.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert properties.keys() == {"name", "version", "author", "maintainer", "sentence", "paragraph", "category",
                                 "architectures", "includes"}  # fmt: skip
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,62}", properties["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])
    assert (arduino / "src" / properties["includes"]).is_file()
    assert "avr" not in properties["architectures"].split(",")
    assert {p.stem for p in arduino.rglob("*.ino")} == {p.parent.name for p in arduino.rglob("*.ino")}


@pytest.mark.parametrize("sketch", ["Golden", "Decide"])
def test_a_sketch_decides_as_python(
    loaded: Loaded, zephyr: Path, arduino: Path, kernel: Path, tmp_path: Path, sketch: str
) -> None:
    for path in (zephyr / "src").glob("h*.[ch]"):
        assert (arduino / "src" / path.name).read_bytes() == path.read_bytes()
    said = emulated(tmp_path, compiled(arduino / f"examples/{sketch}/{sketch}.ino", tmp_path, arduino / "src"), kernel)
    _, answer = decided(loaded, loaded.bundle.golden[0].readings, ())
    assert (
        said
        == {
            "Golden": "64 of 64 golden cases are right\n",
            "Decide": re.sub(r" \(\d\)", "", answer) + "\n",
        }[sketch]
    )


def test_the_command_writes_both_and_keeps_what_was_edited(
    loaded: Loaded, zephyr: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, out = tmp_path / "m.hcb", tmp_path / "module"
    bundle.write_bytes(pack_bundle(loaded.bundle))
    assert main(["export", str(bundle), "--zephyr", str(out), "--arduino", str(tmp_path / "library")]) == 0
    said = capsys.readouterr().out
    assert "a module of Zephyr; next: see" in said
    assert "an Arduino library; next: see" in said
    assert (tmp_path / "library/library.properties").is_file()
    edited = out / "samples/decide/src/sensors.h"
    edited.write_text("/* mine */\n")
    (out / "src/model.h").write_text("/* mine */\n")
    assert main(["export", str(bundle), "--zephyr", str(out)]) == 0
    assert edited.read_text() == "/* mine */\n"
    assert (out / "src/model.h").read_bytes() == (zephyr / "src/model.h").read_bytes()
