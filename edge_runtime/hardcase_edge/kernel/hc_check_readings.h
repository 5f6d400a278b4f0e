/* SPDX-License-Identifier: Apache-2.0 */
/* The check of sensors: their features, columns, keys and costs. */
#ifndef HARDCASE_CHECK_READINGS_H
#define HARDCASE_CHECK_READINGS_H

#include "hc_check.h"

static int check_affine(checked *c, uint32_t offset, int is_wide)
{
    bytes_in p;
    int64_t frac, mul, add, shift, low, high;
    if (!holds(c, offset, 6, 8)) return 0;
    p = c->image + offset;
    frac = get_i64(p), mul = get_i64(p + 8), add = get_i64(p + 16);
    shift = get_i64(p + 24), low = get_i64(p + 32), high = get_i64(p + 40);
    return frac >= -64 && frac <= 64 && mul >= -INT32_MAX && mul <= INT32_MAX && add > -SAFE && add < SAFE &&
           shift >= 0 && shift <= 62 && low >= -CODE_MAX && low <= high && high <= CODE_MAX &&
           (is_wide || high - low < SMALL_MISSING - 1);
}

static int check_column(checked *c, bytes_in column, uint32_t reading_bytes)
{
    uint32_t a = get_u32(column + C_A), b = get_u16(column + C_B), at_reading = 4 * (uint32_t)get_u16(column + C_READING);
    unsigned is_wide = column[C_FLAGS] & C_IS_WIDE, type = column[C_FLAGS] >> C_TYPE;
    uint32_t most = is_wide ? MOST_RANKS : SMALL_MISSING - 2, size = type == T_F64 ? 8 : 4;
    if (type > T_F64 || (type == T_F64 && !HAS(HC_F64))) return 0;
    if (at_reading % size || at_reading + size > reading_bytes || (is_wide && !HAS(HC_WIDE | HC_POLYNOMIALS))) return 0;
    if (get_u16(column + C_CELL) >= word(c->image, is_wide ? H_WIDE : H_SMALL)) return 0;
    switch (column[C_RULE]) {
    case R_AFFINE: return HAS(HC_AFFINE) && check_affine(c, a, is_wide != 0);
    case R_RANK: return b <= most && holds(c, a, b, size);
    case R_DIRECT: return b <= most && type == T_I32;
    default: return column[C_RULE] == R_COPY;
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
        uint32_t n = word(record, N_FEATURES), n_columns = word(record, N_COLUMNS), plain = word(record, N_PLAIN);
        if (word(record, N_FEATURE) != features || n > word(i, H_FEATURES) - features) return 0;
        if (word(record, N_COLUMN) != columns || n_columns > word(i, H_COLUMNS) - columns || plain > ALL_DIRECT) return 0;
        for (; n > 0; n--, features++, feature += FEATURE_BYTES) {
            unsigned type = feature[F_TYPE], size = type == T_F64 ? 8 : 4, sent = get_u16(feature + F_UPLINK);
            if (type > T_F64 || (type == T_F64 && !HAS(HC_F64)) || (plain && (plain == ALL_F32 ? T_F32 : T_I32) != type)) return 0;
            if (sent != NOT_SENT && sent + size > word(i, H_REQUEST_BYTES)) return 0;
            n_bytes = (n_bytes + size - 1) / size * size + size;
        }
        if (word(record, N_READING_BYTES) != n_bytes || !check_keys(i, word(record, N_KEYS), n_bytes)) return 0;
        for (; n_columns > 0; n_columns--, columns++, column += COLUMN_BYTES)
            if (!check_column(c, column, (uint32_t)n_bytes) || (plain == ALL_DIRECT && get_u16(column) != R_DIRECT)) return 0;
        if (!check_cost(c, word(record, N_COST), word(record, N_COSTS)) ||
            !all_below(c, word(record, N_SCORERS), word(record, N_SCORERS_COUNT), word(i, H_SCORERS)))
            return 0;
    }
    return features == word(i, H_FEATURES) && columns == word(i, H_COLUMNS);
}

#endif
