/* SPDX-License-Identifier: Apache-2.0 */
/* The devices behind the stand-ins: each row has a reading a channel, in quarters, and the sensors that fail. */
#include <zephyr/drivers/sensor.h>
#include <zephyr/kernel.h>

#include "rows.h"

static int row;

int32_t k_sleep(int timeout)
{
    (void)timeout;
    if (++row == N_ROWS) exit(0);
    return 0;
}

bool device_is_ready(const struct device *device)
{
    return device->number >= 0;
}

int sensor_sample_fetch(const struct device *device)
{
    printf("%d ", device->number);
    return rows[row].fails[device->number] ? -5 : 0;
}

int sensor_channel_get(const struct device *device, enum sensor_channel channel, struct sensor_value *value)
{
    const int quarters = rows[row].quarters[channel];
    (void)device;
    if (quarters == MISSING) return -134;
    value->val1 = quarters / 4;
    value->val2 = quarters % 4 * 250000;
    return 0;
}
