# SPDX-License-Identifier: Apache-2.0
"""The targets of this distribution: parts of a policy in ONNX, and all of it in C and for other runtimes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from .targets import EXACT, MODELS, ROUNDED, Output, Source, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hardcase_edge.bundle.load import Loaded

    from .runtimes import Models
    from .to_c.folder import ExportedC

BUNDLE = "model.hcb"  # in a folder of C sources


def _onnx(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    from .runtimes import golden_rows, hpc_model, onnx_models

    if source.built is None:
        program, manifest = source.loaded.machine.program, source.loaded.manifest
        return _output(onnx_models(program, manifest, golden_rows(source.loaded)), folder, "golden cases")
    point = source.built.point
    program, manifest = point.quantised.program, point.manifest
    models = onnx_models(program, manifest, point.test)
    if not source.built.build.front.legacy:  # f0 is a file
        models = models.join([hpc_model(source.built.build.folder, program, manifest, point.test)])
    return _output(models, folder)


def _tflite(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    from .runtimes import tflite_models

    assert source.built is not None
    point = source.built.point
    return _output(tflite_models(point.quantised.program, point.manifest, point.test, point.valid), folder)


def _output(models: Models, folder: Path, rows: str = "test rows") -> Output:
    lines = [f"{folder / e['file']}: {e['bytes']} bytes, {_agreement(e, rows)}" for e in models.entries]
    return Output(models.files, models.entries, lines)


def _agreement(entry: dict[str, Any], rows: str) -> str:
    test = entry["test"]
    if "range" in entry:
        low, high = entry["range"]
        gap, allowed = (value / (high - low) for value in (test["gap"], entry["allowed"]))
        return (
            f"the same best score on {test['same_best']} of {test['rows']} {rows}, off by at most {gap:.1%} of its "
            f"range ({allowed:.1%} allowed)"
        )
    gap = f", off by at most {test['gap']:g} steps ({entry['allowed']:g} allowed)" if test.get("gap") else ""
    return f"{test['rows'] - test['apart']} of {test['rows']} {rows} as before{gap}"


def _c(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    """Sources and bundle; ``main.c`` and ``sensors.h`` of an earlier export in the folder stay if edited."""
    from .to_c.folder import own_files, write_c

    with TemporaryDirectory(prefix="hardcase-") as holder:
        sources = write_c(source.loaded, Path(holder), inline="inline" in switches)
        paths = [path for path in Path(holder).rglob("*") if path.is_file()]
        files = {path.relative_to(holder).as_posix(): path.read_bytes() for path in paths}
    files |= _bundle(source) | _edited(folder, own_files, source.loaded)
    return Output(files, _c_values(folder, sources), _c_lines(folder, sources, "inline" in switches), BUNDLE)


def _bundle(source: Source) -> dict[str, bytes]:
    """The bundle, and its signature if it has one."""
    from hardcase_edge.bundle.signature import signature_path

    signature = {} if source.signature is None else {signature_path(Path(BUNDLE)).name: source.signature}
    return {BUNDLE: source.data} | signature


def _edited(out: Path, own_files: Callable[[Loaded], Mapping[str, str]], new: Loaded) -> dict[str, bytes]:
    """The files of an earlier export that its user has changed, of those that are for the user to edit.

    Where the bundle of that export is gone, any that are not as this export of ``new`` would write them.
    """
    from hardcase_edge.bundle.load import load_bundle

    written = own_files(load_bundle(out / BUNDLE) if (out / BUNDLE).exists() else new)
    try:
        found = {name: (out / name).read_bytes() for name in written if (out / name).exists()}
    except OSError as error:
        raise InputError(f"a file of the earlier export in {out} cannot be read: {error.strerror}") from error
    return {name: data for name, data in found.items() if data != written[name].encode("utf-8")}


def _js(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    from .to_js.folder import js_files

    files = js_files(source.loaded)
    size = len(files["hardcase.wasm"])
    values = {"folder": str(folder), "wasm": size, "sha256": source.loaded.bundle.sha256}
    return Output(files, values, [f"{folder}: an npm package, its kernel of {size} bytes; npm install {folder}"])


def _micropython(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    from .to_micropython.folder import micropython_files, micropython_memory

    files = micropython_files(source.loaded)
    memory = micropython_memory(files)
    flash, heap = memory["flash"], memory["heap"]
    image = len(files["hardcase/image.bin"])
    native = {Path(path).stem: len(data) for path, data in files.items() if path.startswith("native/")}
    values = {"folder": str(folder), "image": image, "native": native, "sha256": source.loaded.bundle.sha256, **memory}
    lines = [
        f"{folder}: a policy for MicroPython, an image of {image} bytes; next: see {folder}/README.md",
        f"  kernel     {_parts(native)} bytes",
        f"  flash      {sum(flash.values())} bytes at most: {_parts(flash)}",
        f"  RAM        {sum(heap.values())} bytes of heap at most, computed for 32 bits: {_parts(heap)}; "
        f"mpremote run {folder}/memory.py measures a board's",
    ]
    return Output(files, values, lines)


def _parts(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _esphome(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    from .to_esphome.folder import esphome_files

    values = {"folder": str(folder), "sha256": source.loaded.bundle.sha256}
    line = f"{folder}: an external component for ESPHome; next: esphome run {folder}/example.yaml"
    return Output(esphome_files(source.loaded), values, [line])


def _zephyr(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    """A module of Zephyr and the bundle; what was edited of the sample of an earlier export stays."""
    from .to_c.frameworks import zephyr_files, zephyr_own

    files = zephyr_files(source.loaded) | _bundle(source) | _edited(folder, zephyr_own, source.loaded)
    values = {"folder": str(folder), "sha256": source.loaded.bundle.sha256}
    return Output(files, values, [f"{folder}: a module of Zephyr; next: see {folder}/README.md"], BUNDLE)


def _arduino(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    from .to_c.frameworks import arduino_files

    values = {"folder": str(folder), "sha256": source.loaded.bundle.sha256}
    lines = [f"{folder}: an Arduino library; next: see {folder}/README.md"]
    return Output(arduino_files(source.loaded), values, lines)


def _c_values(out: Path, sources: ExportedC) -> dict[str, Any]:
    sizes = {
        s.core: {
            "flash": s.flash,
            "flash_small": s.flash_small,
            "ram": s.ram,
            "session": s.session,
            "measured": s.is_measured,
            "fits": s.lacks() is None,
        }
        for s in sources.sizes
    }
    return {"folder": str(out), "image": sources.image_bytes, "inlined": list(sources.inlined), "sizes": sizes}


def _c_lines(out: Path, sources: ExportedC, is_inline: bool) -> list[str]:
    how = "" if sources.sizes[0].is_measured else ", upper bounds; install arm-none-eabi-gcc with newlib to measure"
    lines = [f"{out}: C sources, tables of {sources.image_bytes} bytes; next: see {out}/README.md"]
    if sources.inlined:
        lines.append(f"  unrolled   scorers {', '.join(map(str, sources.inlined))} are code")
    if is_inline and not sources.inlined:
        lines.append("  unrolled   nothing: no scorer has trees that are neither too large nor shared")
    if sources.inlined and sources.tables:
        lines.append(
            f"  tables     scorers {', '.join(map(str, sources.tables))} are too large or shared, and stay tables"
        )
    for s in sources.sizes:
        small = f" ({s.flash_small} at -Os)" if s.is_measured else ""
        ram = f"RAM {s.ram} bytes ({s.session} a session, {s.stack} stack)"
        memory = s.lacks() or f"flash {s.flash} bytes{small}, {ram}"
        lines.append(f"  {s.core:<10} {memory}{how}")
    return lines


ONNX = Target(
    "also write gate.onnx, lpc.onnx and hpc.onnx there",
    _onnx,
    MODELS,
    of_bundle=True,
    allowed=EXACT,
    against="its trees compare in float32, and are the same as a device's on the rows that were compared",
)
TFLITE = Target(
    "also write gate.tflite and lpc.tflite there",
    _tflite,
    MODELS,
    allowed={kind: EXACT[kind] for kind in ("linear", "polynomial", "trees", "stack")} | {"opaque": ROUNDED},
    against="it holds gate and model, and not the order in which sensors are read",
)
C = Target(
    "folder to write with C sources for a microcontroller and the bundle",
    _c,
    "C export",
    {"inline": "write small tree ensembles as code instead of tables"},
    of_bundle=True,
    allowed=EXACT,
    mixes=True,
    maturity="proven",
    against="it ran on emulated boards and on x86, on no microcontroller",
)
JS = Target(
    "folder to write as an npm package: the kernel as WebAssembly, its wrapper with types, and the policy",
    _js,
    "npm package",
    of_bundle=True,
    allowed=EXACT,
    against="it asks for sensors and replies; timers, MQTT and stores are the user's",
)
MICROPYTHON = Target(
    "folder to write for MicroPython: the policy, its wrapper, and the kernel as native modules and as a user C module",
    _micropython,
    "MicroPython folder",
    of_bundle=True,
    allowed=EXACT,
    against="it ran on MicroPython's port for Linux and on an emulated Cortex-M3, on no microcontroller",
)
ESPHOME = Target(
    "folder to write for ESPHome: an external component with the policy, and an example",
    _esphome,
    "ESPHome folder",
    of_bundle=True,
    allowed=EXACT,
    against="it ran on ESPHome's host platform, on no microcontroller, and with a stand-in for its MQTT's network",
)
ZEPHYR = Target(
    "folder to write as a module of Zephyr: the kernel, the policy, a sample with the sensor API, and Twister's files",
    _zephyr,
    "Zephyr module",
    of_bundle=True,
    allowed=EXACT,
    against="its C was compiled and run with stand-ins for Zephyr's headers, never with Zephyr",
)
ARDUINO = Target(
    "folder to write as an Arduino library: the kernel, the policy and two examples",
    _arduino,
    "Arduino library",
    of_bundle=True,
    allowed=EXACT,
    against="its C++ was compiled and run with a stand-in for Arduino's core, on no board; an AVR is too small",
)
