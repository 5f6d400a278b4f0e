/* SPDX-License-Identifier: Apache-2.0 */
/* The check of sensors: their features, columns, keys and costs. */
#ifndef HARDCASE_CHECK_READINGS_H
#define HARDCASE_CHECK_READINGS_H

#include "hc_check.h"

static int check_affine(checked *c, uint32_t offset, int is_wide)
{
    bytes_in p;
    int64_t frac, mul, add, shift, low, high;
    if (!holds(c, offset, AFFINE_BYTES / 8, 8)) return 0;
    p = c->image + offset;
    frac = get_i64(p + AFFINE_FRAC), mul = get_i64(p + AFFINE_MUL), add = get_i64(p + AFFINE_ADD);
    shift = get_i64(p + AFFINE_SHIFT), low = get_i64(p + AFFINE_LOW), high = get_i64(p + AFFINE_HIGH);
    return frac >= -64 && frac <= 64 && mul >= -INT32_MAX && mul <= INT32_MAX && add > -SAFE && add < SAFE &&
           shift >= 0 && shift <= 62 && low >= -CODE_MAX && low <= high && high <= CODE_MAX &&
           (is_wide || high - low < SMALL_MISSING - 1);
}

static int check_column(checked *c, bytes_in column, uint32_t reading_bytes)
{
    uint32_t a = get_u32(column + COLUMN_A), b = get_u16(column + COLUMN_B);
    uint32_t at_reading = 4 * (uint32_t)get_u16(column + COLUMN_READING);
    unsigned is_wide = column[COLUMN_FLAGS] & COLUMN_IS_WIDE, type = column[COLUMN_FLAGS] >> COLUMN_TYPE;
    uint32_t most = is_wide ? MOST_RANKS : SMALL_MISSING - 2, size = type == F64 ? 8 : 4;
    if (type > F64 || (type == F64 && !HAS(HC_F64))) return 0;
    if (at_reading % size || at_reading + size > reading_bytes || (is_wide && !HAS(HC_WIDE | HC_POLYNOMIALS | HC_NETWORKS))) return 0;
    if (get_u16(column + COLUMN_CELL) >= word(c->image, is_wide ? H_WIDE : H_SMALL)) return 0;
    switch (column[COLUMN_RULE]) {
    case AFFINE: return HAS(HC_AFFINE) && check_affine(c, a, is_wide != 0);
    case RANK: return b <= most && holds(c, a, b, size);
    case DIRECT: return b <= most && type == I32;
    default: return column[COLUMN_RULE] == COPY;
    }
}

/* Keys, where a sensor has any, lie between the session's struct and its scores. */
static int check_keys(bytes_in image, uint32_t from, uint64_t n_bytes)
{
    if (from == 0) return 1;
    return HAS(HC_INLINE) && from % 8 == 0 && from >= sizeof(hc_session) && from + n_bytes <= word(image, S_SCORES);
}

/* Features and columns lie one after the other, sensor by sensor. */
static int check_sensors(checked *c)
{
    bytes_in i = c->image, feature = at(i, H_AT_FEATURES), column = at(i, H_AT_COLUMNS);
    uint32_t features = 0, columns = 0;
    for (uint32_t k = 0; k < word(i, H_SENSORS); k++) {
        bytes_in record = sensor_record(i, k);
        uint64_t n_bytes = 0;
        uint32_t n = word(record, SENSOR_FEATURES), n_columns = word(record, SENSOR_COLUMNS);
        uint32_t plain = word(record, SENSOR_PLAIN);
        if (word(record, SENSOR_FEATURE) != features || n > word(i, H_FEATURES) - features) return 0;
        if (word(record, SENSOR_COLUMN) != columns || n_columns > word(i, H_COLUMNS) - columns) return 0;
        if (plain > ALL_DIRECT) return 0;
        for (; n > 0; n--, features++, feature += FEATURE_BYTES) {
            unsigned type = feature[FEATURE_TYPE], size = type == F64 ? 8 : 4, sent = get_u16(feature + FEATURE_UPLINK);
            if (type > F64 || (type == F64 && !HAS(HC_F64)) || (plain && (plain == ALL_F32 ? F32 : I32) != type)) return 0;
            if (sent != NOT_SENT && sent + size > word(i, H_REQUEST_BYTES)) return 0;
            n_bytes = (n_bytes + size - 1) / size * size + size;
        }
        if (word(record, SENSOR_READING_BYTES) != n_bytes || !check_keys(i, word(record, SENSOR_KEYS), n_bytes)) return 0;
        for (; n_columns > 0; n_columns--, columns++, column += COLUMN_BYTES)
            if (!check_column(c, column, (uint32_t)n_bytes) ||
                (plain == ALL_DIRECT && get_u16(column + COLUMN_RULE) != DIRECT)) /* with its flags, which are 0 */
                return 0;
        if (!check_cost(c, word(record, SENSOR_COST), word(record, SENSOR_COSTS)) ||
            !all_below(c, word(record, SENSOR_SCORERS), word(record, SENSOR_SCORERS_COUNT), word(i, H_SCORERS)))
            return 0;
    }
    return features == word(i, H_FEATURES) && columns == word(i, H_COLUMNS);
}

#endif
