# SPDX-License-Identifier: Apache-2.0
"""A module of Zephyr and an Arduino library: the C export's kernel and tables in the forms that their tools expect."""

from __future__ import annotations

from pathlib import Path
from string import Template

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.errors import InputError
from hardcase_edge.program.inner import inner_sensors

from .folder import kernel_files, own_files, policy_files
from .header import Names

HERE = Path(__file__).parent
SAMPLE = "samples/decide/src"
CHANNELS = {  # of Zephyr's sensors, by what a feature's name holds; the user corrects them
    "temp": "AMBIENT_TEMP", "hum": "HUMIDITY", "press": "PRESS", "light": "LIGHT", "lux": "LIGHT", "volt": "VOLTAGE",
    "curr": "CURRENT", "power": "POWER", "co2": "CO2", "dist": "DISTANCE",
}  # fmt: skip
OTHER = "PRIV_START"
SENSORS = Template("""\
/* Your sensors, each the device of a devicetree alias such as $example, and each reading one of its channels. The
 * channels were guessed from the names: correct them. A sensor without a device counts as failed. */
#include <math.h>

#include <zephyr/drivers/sensor.h>

#include "model.h"

static inline int is_fetched(const struct device *device)
{
    return device != NULL && device_is_ready(device) && sensor_sample_fetch(device) == 0;
}

static inline double number_of(const struct device *device, enum sensor_channel channel)
{
    struct sensor_value value;
    return sensor_channel_get(device, channel, &value) == 0 ? sensor_value_to_double(&value) : (double)NAN;
}

static inline int32_t whole_of(const struct device *device, enum sensor_channel channel)
{
    struct sensor_value value;
    return sensor_channel_get(device, channel, &value) == 0 ? value.val1 : INT32_MIN;
}

static int read_sensor(int sensor, model_readings *r)
{
    const struct device *device;
    (void)r;
    switch (sensor) {
$cases
    default:
        return 0;
    }
}
""")


def zephyr_files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the module, by path.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        The policy reads a sensor that only the C export's own example fills.
    """
    files = _templates("zephyr", {"cases": str(len(loaded.bundle.golden))})
    return files | _sources(loaded, "--zephyr") | _bytes(zephyr_own(loaded))


def zephyr_own(loaded: Loaded) -> dict[str, str]:
    """Text by path of the files for the user to edit, as they are first written for a bundle."""
    main = (HERE / "zephyr" / SAMPLE / "main.c").read_text(encoding="ascii")
    return {f"{SAMPLE}/main.c": main, f"{SAMPLE}/sensors.h": _zephyr_sensors(loaded)}


def _zephyr_sensors(loaded: Loaded) -> str:
    """The text of ``sensors.h``."""
    program, manifest = loaded.bundle.program, loaded.manifest
    names = Names(program, manifest)
    cases, aliases = [], []
    for enum, member, fields in zip(names.enums, names.members, names.fields, strict=True):
        alias = f"hardcase_{member.removeprefix('of_').lower()}"
        aliases.append(alias.replace("_", "-"))
        cases += [
            f"    case {enum}:",
            f"        device = DEVICE_DT_GET_OR_NULL(DT_ALIAS({alias}));",
            "        if (!is_fetched(device)) return 0;",
        ]
        for f, field in fields:
            channel = next((c for part, c in CHANNELS.items() if part in manifest.features[f].lower()), OTHER)
            dtype = program.features[f].dtype
            read = {"i32": "whole_of", "f32": "(float)number_of", "f64": "number_of"}[dtype]
            cases.append(f"        r->{member}.{field} = {read}(device, SENSOR_CHAN_{channel});")
        cases.append("        return 1;")
    return SENSORS.substitute(example=(aliases or ["hardcase-x"])[0], cases="\n".join(cases))


def arduino_files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the library, by path.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        The policy reads a sensor that only the C export's own example fills.
    """
    own = {"examples/Decide/sensors.h": own_files(loaded)["sensors.h"]}
    return _templates("arduino", {}) | _sources(loaded, "--arduino") | _bytes(own)


def _templates(name: str, values: dict[str, str]) -> dict[str, bytes]:
    root = HERE / name
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="ascii") for path in root.rglob("*.*")}
    return _bytes({path: Template(text).safe_substitute(values) for path, text in texts.items()})


def _sources(loaded: Loaded, flag: str) -> dict[str, bytes]:
    """The kernel and what is made of the policy, below ``src``."""
    refuse_inner(loaded, flag)
    kernel = {f"src/{path.name}": path.read_bytes() for path in kernel_files(loaded)}
    return kernel | _bytes({f"src/{name}": text for name, text in policy_files(loaded)[1].items()})


def refuse_inner(loaded: Loaded, flag: str) -> None:
    """Raise ``InputError`` if the policy reads a sensor that only the Python and the C runtime fill."""
    inner = inner_sensors(loaded.bundle.program, loaded.manifest.features, loaded.manifest.sensors)
    if inner:
        raise InputError(
            f"the policy reads the inner sensor {next(iter(inner))!r}, which {flag} has not; use --c, or export another"
        )


def _bytes(texts: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode("ascii") for path, text in texts.items()}
