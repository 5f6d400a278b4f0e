/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase: the servo. It keeps the spending of a device on a plan by moving thresholds of its policy, in integers only.
 *
 * It is hardcase_edge/more/servo/bucket.py and bundle/prices.py bit for bit: no clock, no I/O, no allocation, no floats. The image
 * lies in RAM, because its thresholds move; prices.h, which hardcase export writes, has the table.
 *
 *     static hc_bucket bucket;
 *
 *     hc_bucket_open(&bucket, 3600000000, WORST_COST, HC_LAST(&prices), prices.shipped * HC_LEVEL);
 *     for (;;) {
 *         hc_passed(&bucket, ms_since_last_time);
 *         hc_set_price(model, &prices, hc_position(&bucket));
 *         hc_start(s, model, bucket.left, 1, HC_CLOUD);
 *         ...
 *         hc_spent(&bucket, s->spent - s->saved);
 *     }
 *
 * What is spent never exceeds what the bucket holds, whatever the cases are: two bursts and the plan.
 */
#ifndef HARDCASE_SERVO_H
#define HARDCASE_SERVO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HC_LEVEL 65536 /* positions of the price from one level of the table to the next */
#define HC_LAST(prices) (((prices)->n_levels - 1) * HC_LEVEL)

/* A running budget. Keep left and base over a restart: hc_bucket_open, then set both. */
typedef struct hc_bucket {
    int64_t rate;  /* micro-units in an hour, 0 to 2^50 */
    int64_t burst; /* micro-units ahead of the plan, 1 to 2^50 */
    int64_t left;  /* what may be spent now, 0 to 2 bursts: the budget of the next decision */
    int32_t steps; /* the highest position of the price, 1 to 2^22 */
    int32_t base;  /* of the price */
    int32_t carry;
} hc_bucket;

/* The table of prices: of n_levels levels, each with a threshold for each of n_nodes nodes. */
typedef struct hc_prices {
    const uint32_t *nodes;
    const int64_t *thresholds; /* level by level */
    int32_t n_nodes, n_levels, shipped;
} hc_prices;

/* Begin a budget; begin is the first position of the price, 0 to steps. */
void hc_bucket_open(hc_bucket *b, int64_t rate, int64_t burst, int32_t steps, int32_t begin);

/* Time has passed. */
void hc_passed(hc_bucket *b, uint32_t ms);

/* A decision has cost this. */
void hc_spent(hc_bucket *b, int64_t cost);

/* The price that the bucket asks for: 0, at which most is spent, to steps. */
int32_t hc_position(const hc_bucket *b);

/* The threshold of a node, by its place in the table, at a position; positions outside the table mean its ends. */
int64_t hc_threshold(const hc_prices *p, int32_t place, int32_t position);

/* Set all of them in an image in RAM. Returns 0, or HC_ERROR_ARGUMENT if the table is not the image's. */
int hc_set_price(void *image, const hc_prices *p, int32_t position);

#ifdef __cplusplus
}
#endif

#endif
