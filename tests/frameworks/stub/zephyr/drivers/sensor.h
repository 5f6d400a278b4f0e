/* SPDX-License-Identifier: Apache-2.0 */
/* What the exported sources take of Zephyr's devices and sensors. */
#ifndef STUB_SENSOR_H
#define STUB_SENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
    int number;
};
struct sensor_value {
    int32_t val1, val2; /* millionths */
};
enum sensor_channel {
    SENSOR_CHAN_AMBIENT_TEMP,
    SENSOR_CHAN_HUMIDITY,
    SENSOR_CHAN_PRESS,
    SENSOR_CHAN_VOLTAGE,
    SENSOR_CHAN_PRIV_START
};

#define DT_ALIAS(alias) alias
#define STUB_DEVICE(node) (&device_##node)
#define DEVICE_DT_GET_OR_NULL(node) STUB_DEVICE(node)

bool device_is_ready(const struct device *device);
int sensor_sample_fetch(const struct device *device);
int sensor_channel_get(const struct device *device, enum sensor_channel channel, struct sensor_value *value);

static inline double sensor_value_to_double(const struct sensor_value *value)
{
    return (double)value->val1 + (double)value->val2 / 1000000;
}

#include "devices.h"

#endif
