/* SPDX-License-Identifier: Apache-2.0 */
/* The check of an image that comes from outside (docs/SPEC-image-v1.md section 5): its limits, what all of its parts need,
 * and the header. Each part proves what the file of the same name relies on. */
#ifndef HARDCASE_CHECK_H
#define HARDCASE_CHECK_H

#include "hc_image.h"

typedef struct {
    bytes_in image;
    uint32_t n_bytes;
    uint64_t work; /* elements that may still be looked at: a forged image must not keep us for long */
} checked;

/* As in hardcase_edge/program/limits.py: what the verifier proves, this check must not refuse. */
enum {
    MOST_SENSORS = 8192, MOST_NODES = 16384, MOST_TARGETS = 16384, MOST_SCORERS = 65535, MOST_CLASSES = 32767,
    MOST_RANKS = 65534, MOST_CELLS = 65536, MOST_COEFFICIENTS = 8, MOST_SHIFT = 62, MOST_DEPTH = 15, MOST_DIMENSION = 65535,
    MOST_LENT = 4194304, MOST_MULTIPLICATIONS = 32000000, /* of a network */
    MOST_WORK = 1 << 28 /* a verified program takes less: a number of its 4000000 becomes at most 10 bytes, often shared */
};
#define SAFE ((int64_t)1 << 62)

/* Do count elements lie at this offset? */
static int holds(checked *c, uint64_t offset, uint64_t count, uint32_t size)
{
    if (offset % (size > 8 ? 4 : size) || offset > c->n_bytes || count > (c->n_bytes - offset) / size) return 0;
    if (count > c->work) return 0;
    c->work -= count;
    return 1;
}

static int holds_words(checked *c, bytes_in record, uint64_t from, uint64_t count)
{
    return holds(c, (uint64_t)(record - c->image) + 4 * from, count, 4);
}

static int all_below(checked *c, uint32_t offset, uint32_t count, uint32_t limit)
{
    if (!holds(c, offset, count, 2)) return 0;
    for (uint32_t k = 0; k < count; k++)
        if (get_u16(c->image + offset + 2 * (size_t)k) >= limit) return 0;
    return 1;
}

static int check_cost(checked *c, uint32_t offset, uint32_t count)
{
    if (count < 1 || count > MOST_COEFFICIENTS || !holds(c, offset, count, 8)) return 0;
    for (uint32_t k = 0; k < count; k++) {
        int64_t v = get_i64(c->image + offset + 8 * (size_t)k);
        if (v < 0 || v >= SAFE) return 0;
    }
    return 1;
}

/* Does a part of a session lie before the next? Parts are in the header's order. */
static int check_part(bytes_in image, unsigned field, uint64_t n_bytes, uint32_t alignment)
{
    uint64_t from = word(image, field), end = word(image, field == S_SMALL ? (unsigned)H_SESSION_BYTES : field + 1);
    return from >= sizeof(hc_session) && from % alignment == 0 && from + n_bytes <= end;
}

static int check_header(checked *c)
{
    bytes_in i = c->image;
    return word(i, H_SENSORS) <= MOST_SENSORS && word(i, H_NODES) >= 1 && word(i, H_NODES) <= MOST_NODES &&
           word(i, H_SCORERS) <= MOST_SCORERS && word(i, H_CLASSES) <= MOST_CLASSES && word(i, H_CLASSES) != 1 &&
           word(i, H_ITEM_SIZE) >= 1 && word(i, H_ITEM_SIZE) <= INT32_MAX &&
           holds(c, word(i, H_AT_FEATURES), word(i, H_FEATURES), FEATURE_BYTES) &&
           holds(c, word(i, H_AT_SENSORS), word(i, H_SENSORS), 4 * SENSOR_WORDS) &&
           holds(c, word(i, H_AT_COLUMNS), word(i, H_COLUMNS), COLUMN_BYTES) &&
           holds(c, word(i, H_AT_SCORERS), word(i, H_SCORERS), 4) && holds(c, word(i, H_AT_NODES), word(i, H_NODES), 4) &&
           get_i64(i + 4 * H_REQUEST_COST) >= 0 && get_i64(i + 4 * H_REQUEST_COST) < SAFE &&
           word(i, H_SMALL) <= 256 && word(i, H_SMALL_LEFT) <= word(i, H_SMALL) && word(i, H_WIDE) <= MOST_CELLS &&
           word(i, H_WIDE_LEFT) <= word(i, H_WIDE) && word(i, H_STEPS) >= 1 && word(i, H_STEPS) <= MOST_NODES &&
           word(i, H_SESSION_BYTES) % 8 == 0 && check_part(i, S_SCORES, 0, 8) &&
           check_part(i, S_REQUEST, word(i, H_REQUEST_BYTES), 1) && check_part(i, S_WIDE, 2 * (uint64_t)word(i, H_WIDE), 2) &&
           check_part(i, S_TRACE, 2 * (uint64_t)word(i, H_STEPS), 2) &&
           check_part(i, S_WINNERS, 2 * (uint64_t)word(i, H_ENTRANTS), 2) && check_part(i, S_SMALL, word(i, H_SMALL), 1) &&
           check_part(i, S_SENSORS, word(i, H_SENSORS), 1) && word(i, S_IS_SCORED) == word(i, S_SENSORS) + word(i, H_SENSORS) &&
           word(i, S_SMALL) == word(i, S_IS_SCORED) + word(i, H_SCORERS);
}

#endif
