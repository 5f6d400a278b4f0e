/* SPDX-License-Identifier: Apache-2.0 */
/* The servo: see hardcase_servo.h. Each line is one of bucket.py or prices.py; divisions are of numbers that are not below 0,
 * which C and Python round alike, and all products fit 64 bits within the limits of the header. */
#include "hardcase_servo.h"

#include "hardcase.h"

enum { HOUR_MS = 3600000, HALF = 512, SETTLE_MS = 600000, LONGEST_MS = 10000, BASE_MOST = HALF * SETTLE_MS };

static int64_t clipped(int64_t v, int64_t most) { return v < 0 ? 0 : v > most ? most : v; }

/* Parts of the bucket that are full. */
static int64_t fill(const hc_bucket *b) { return b->left * HALF / b->burst; }

void hc_bucket_open(hc_bucket *b, int64_t rate, int64_t burst, int32_t steps, int32_t begin)
{
    b->rate = rate;
    b->burst = b->left = burst;
    b->steps = steps;
    b->base = (int32_t)(((int64_t)begin * BASE_MOST + steps - 1) / steps);
    b->carry = 0;
}

void hc_passed(hc_bucket *b, uint32_t ms)
{
    int64_t part, filled, change = (HALF - fill(b)) * (ms < LONGEST_MS ? (int64_t)ms : LONGEST_MS);
    int32_t position = hc_position(b);
    if ((change > 0 && position < b->steps) || (change < 0 && position > 0))
        b->base = (int32_t)clipped(b->base + change, BASE_MOST);
    part = b->rate % HOUR_MS * ms + b->carry;
    filled = b->left + b->rate / HOUR_MS * ms + part / HOUR_MS;
    b->carry = (int32_t)(part % HOUR_MS);
    b->left = filled < 2 * b->burst ? filled : 2 * b->burst;
}

void hc_spent(hc_bucket *b, int64_t cost) { b->left -= clipped(cost, b->left); }

int32_t hc_position(const hc_bucket *b)
{
    int64_t base = (int64_t)b->steps * b->base / BASE_MOST, beside = HALF - fill(b);
    int64_t parts = (beside < 0 ? -beside : beside) * (HALF * HALF + 3 * beside * beside) / (4 * HALF * HALF);
    int64_t away = b->steps * parts / HALF;
    return (int32_t)clipped(beside > 0 ? base + away : base - away, b->steps);
}

int64_t hc_threshold(const hc_prices *p, int32_t place, int32_t position)
{
    int32_t at = (int32_t)clipped(position, HC_LAST(p));
    const int64_t *level = p->thresholds + (int64_t)(at / HC_LEVEL) * p->n_nodes + place;
    int64_t a = level[0], b, part = at % HC_LEVEL, way;
    if (part == 0) return a;
    b = level[p->n_nodes];
    way = b >= a ? b - a : a - b;
    way = way / HC_LEVEL * part + way % HC_LEVEL * part / HC_LEVEL;
    return b >= a ? a + way : a - way;
}

int hc_set_price(void *image, const hc_prices *p, int32_t position)
{
    int status = 0;
    for (int32_t k = 0; k < p->n_nodes && status == 0; k++)
        status = hc_move(image, p->nodes[k], hc_threshold(p, k, position));
    return status;
}
