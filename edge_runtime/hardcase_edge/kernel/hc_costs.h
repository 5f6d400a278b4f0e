/* SPDX-License-Identifier: Apache-2.0 */
/* Costs: what sensors and transmissions are charged, and whether the budget holds for them. */
#ifndef HARDCASE_COSTS_H
#define HARDCASE_COSTS_H

#include "hc_image.h"

static int64_t polynomial(bytes_in coefficients, uint32_t n, int64_t size)
{
    int64_t value = get_i64(coefficients + 8 * (size_t)--n); /* there is always one, and mostly one only */
    while (n-- > 0) value = add64(mul64(value, size), get_i64(coefficients + 8 * (size_t)n));
    return value;
}

static int64_t cost_of(const hc_session *s, uint32_t sensor)
{
    bytes_in record = sensor_record(image_of(s), sensor);
    return polynomial(image_of(s) + word(record, SENSOR_COST), word(record, SENSOR_COSTS), s->item_size);
}

/* What a decision costs before it buys anything. */
static int64_t start_cost(bytes_in image)
{
    return HAS(HC_STARTS) && word(image, H_MAGIC) == MAGIC_MORE ? get_i64(image + 4 * M_START_COST) : 0;
}

static int64_t request_cost(const hc_session *s) { return get_i64(image_of(s) + 4 * H_REQUEST_COST); }

static int fits(const hc_session *s, int64_t cost)
{
    return cost >= 0 && cost <= (int64_t)((uint64_t)s->budget - (uint64_t)s->spent);
}

/* What the sensors of a forward still cost, but for those that have failed. */
static int64_t price(const hc_session *s, bytes_in node)
{
    const unsigned char *flags = part_of(s, S_SENSORS);
    int64_t total = 0;
    for (uint32_t k = 0; k < word(node, BUY_SENSORS); k++) {
        uint32_t sensor = word(node, BUY_WORDS + k);
        if (!(flags[sensor] & (BOUGHT | FAILED))) total = add64(total, cost_of(s, sensor));
    }
    return total;
}

/* Has no sensor of an acquire these flags, and does the budget hold for those that are not bought yet? */
static int can_buy(const hc_session *s, bytes_in node, unsigned without)
{
    const unsigned char *flags = part_of(s, S_SENSORS);
    int64_t total = 0;
    int any = 0;
    for (uint32_t k = 0; k < word(node, BUY_SENSORS); k++) {
        uint32_t sensor = word(node, BUY_WORDS + k);
        if (flags[sensor] & without) return 0;
        if (flags[sensor] & BOUGHT) continue;
        total = add64(total, cost_of(s, sensor));
        any = 1;
    }
    return !any || fits(s, total); /* what is there already may be used when the budget's time is over */
}

/* The walk wanted the sensors of this node: LACKED marks those that have failed, UNPAID those that are not bought. */
static void note(hc_session *s, bytes_in node, unsigned mark)
{
    unsigned char *flags = part(s, S_SENSORS);
    for (uint32_t k = 0; k < word(node, BUY_SENSORS); k++) {
        unsigned char *flag = flags + word(node, BUY_WORDS + k);
        if (mark == LACKED ? *flag & FAILED : !(*flag & BOUGHT)) *flag |= (unsigned char)mark;
    }
}

#endif
