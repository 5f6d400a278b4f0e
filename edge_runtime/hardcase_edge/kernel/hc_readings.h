/* SPDX-License-Identifier: Apache-2.0 */
/* Readings: their keys, their codes in a session's cells, and the request that sends them
 * (docs/SPEC-program-v1.md sections 2 and 3). */
#ifndef HARDCASE_READINGS_H
#define HARDCASE_READINGS_H

#include "hc_image.h"

/* A reading's order-preserving key, or NOTHING if it is missing, which no reading has. Minus zero has the key -1 to
 * itself; no threshold has it, so that it ranks as zero does. */
#if HC_PARTS & HC_F64
typedef int64_t reading_key;
#define NOTHING INT64_MIN
#else
typedef int32_t reading_key;
#define NOTHING INT32_MIN
#endif

static inline int is_f64(unsigned type) { return HAS(HC_F64) && type == F64; }

static inline int is_finite(uint32_t bits) { return (bits & 0x7FFFFFFFu) < 0x7F800000u; }
static inline int32_t ordered(uint32_t bits) { return (int32_t)(bits ^ (0u - (bits >> 31)) >> 1); }

static inline reading_key key_of(unsigned type, bytes_in p)
{
    if (!is_f64(type)) {
        uint32_t bits = get_u32(p);
        if (type == I32) return bits == 0x80000000u ? NOTHING : (int32_t)bits;
        return is_finite(bits) ? ordered(bits) : NOTHING;
    }
#if HC_PARTS & HC_F64
    {
        uint64_t bits = (uint64_t)get_i64(p);
        if ((bits & INT64_MAX) >= 0x7FF0000000000000u) return NOTHING;
        return (int64_t)(bits ^ (0u - (bits >> 63)) >> 1);
    }
#else
    return NOTHING;
#endif
}

/* floor(x * 2^frac), held within 32 bits, of the number with this key. */
static int64_t fixed(unsigned type, int64_t key, int64_t frac)
{
    int64_t v = key < 0 ? -(key + 1) : key, exponent;
    if (type == I32) {
        v = key;
        exponent = frac;
    } else {
        unsigned bits = is_f64(type) ? 52 : 23;
        exponent = v >> bits;
        v &= ((int64_t)1 << bits) - 1;
        if (exponent) v |= (int64_t)1 << bits;
        else exponent = 1;
        exponent += frac - (is_f64(type) ? 1023 : 127) - (int64_t)bits;
        if (key < 0) v = -v;
    }
    if (exponent < 0) {
        v = shift_down(v, exponent < -62 ? 62u : (unsigned)-exponent);
    } else {
        if (v >= (int64_t)1 << 32) return INT32_MAX;
        if (v <= -((int64_t)1 << 32)) return INT32_MIN;
        v *= (int64_t)1 << (exponent > 31 ? 31 : exponent);
    }
    return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v;
}

static int64_t affine(unsigned type, int64_t key, bytes_in rule)
{
    int64_t low = get_i64(rule + AFFINE_LOW), high = get_i64(rule + AFFINE_HIGH);
    int64_t v = add64(mul64(fixed(type, key, get_i64(rule + AFFINE_FRAC)), get_i64(rule + AFFINE_MUL)),
                      get_i64(rule + AFFINE_ADD));
    v = shift_down(v, (unsigned)get_i64(rule + AFFINE_SHIFT));
    return v < low ? low : v > high ? high : v;
}

/* How many of n rising keys lie below this one; a branch-free search. */
static uint32_t rank32(bytes_in keys, uint32_t n, int32_t key)
{
    uint32_t low = 0;
    if (n == 0) return 0;
    while (n > 1) {
        uint32_t half = n / 2;
        low += half & (0u - (uint32_t)(get_i32(keys + 4 * (size_t)(low + half - 1)) < key));
        n -= half;
    }
    return low + (get_i32(keys + 4 * (size_t)low) < key);
}

static uint32_t rank64(bytes_in keys, uint32_t n, int64_t key)
{
    uint32_t low = 0;
    if (n == 0) return 0;
    while (n > 1) {
        uint32_t half = n / 2;
        low += half & (0u - (uint32_t)(get_i64(keys + 8 * (size_t)(low + half - 1)) < key));
        n -= half;
    }
    return low + (get_i64(keys + 8 * (size_t)low) < key);
}

/* How far a number lies above a lowest one, at most so far; by maximum and minimum where guessing a branch is dear. */
static inline uint32_t direct(int32_t v, int32_t lowest, uint32_t most)
{
#if HC_LANES > 1
    uint32_t rise = (uint32_t)(v > lowest ? v : lowest) - (uint32_t)lowest;
#else
    uint32_t rise = v > lowest ? (uint32_t)v - (uint32_t)lowest : 0;
#endif
    return rise < most ? rise : most;
}

/* The code of a present reading through a column; small cells count from 1. */
static inline int32_t code_of(bytes_in image, bytes_in column, unsigned type, reading_key key)
{
    uint32_t a = get_u32(column + COLUMN_A), b = get_u16(column + COLUMN_B);
    int is_wide = HAS(HC_WIDE | HC_POLYNOMIALS | HC_NETWORKS) && (column[COLUMN_FLAGS] & COLUMN_IS_WIDE);
    int32_t floor = is_wide ? -CODE_MAX : 1;
    if (column[COLUMN_RULE] == DIRECT) return floor + (int32_t)direct((int32_t)key, (int32_t)a, b);
    if (!HAS(HC_AFFINE) || column[COLUMN_RULE] == RANK)
        return floor + (int32_t)(is_f64(type) ? rank64(image + a, b, key) : rank32(image + a, b, (int32_t)key));
    return (int32_t)(affine(type, key, image + a) - (is_wide ? 0 : get_i64(image + a + AFFINE_LOW) - 1));
}

static const unsigned char TYPE_BYTES[3] = {4, 4, 8};

/* Write one reading into the request; NULL: missing. Minus zero becomes zero. */
static void put_request(hc_session *s, bytes_in feature, bytes_in value)
{
    static const unsigned char MISSING_MARK[3][8] = {
        {0, 0, 0, 0x80}, {0, 0, 0xC0, 0x7F}, {0, 0, 0, 0, 0, 0, 0xF8, 0x7F}};
    static const unsigned char MINUS_ZERO[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    unsigned type = feature[FEATURE_TYPE];
    size_t n = TYPE_BYTES[type];
    unsigned char *out;
    if (get_u16(feature + FEATURE_UPLINK) == NOT_SENT) return;
    out = part(s, S_REQUEST) + get_u16(feature + FEATURE_UPLINK);
    if (value == NULL) memcpy(out, MISSING_MARK[type], n);
    else if (type != I32 && memcmp(value, MINUS_ZERO + 8 - n, n) == 0) memset(out, 0, n);
    else memcpy(out, value, n);
}

/* Keys of readings of four bytes; 0 if one is missing. Two at a time, which some processors load and store at once. */
INLINE int keep_two(int is_f32, bytes_in from, unsigned char *to)
{
    uint32_t a = get_u32(from), b = get_u32(from + 4);
    if (is_f32 ? !is_finite(a) || !is_finite(b) : a == 0x80000000u || b == 0x80000000u) return 0;
    put_i32(to, is_f32 ? ordered(a) : (int32_t)a);
    put_i32(to + 4, is_f32 ? ordered(b) : (int32_t)b);
    return 1;
}

#define KEEP_TWO(k) if (!keep_two(is_f32, from + 8 * k, to + 8 * k)) return 0;

INLINE int keep_all(int is_f32, bytes_in from, uint32_t n, unsigned char *to)
{
    for (; n >= 8; n -= 8, from += 32, to += 32) { FOUR(KEEP_TWO) }
    for (; n > 0; n--, from += 4, to += 4) {
        uint32_t bits = get_u32(from);
        if (is_f32 ? !is_finite(bits) : bits == 0x80000000u) return 0;
        put_i32(to, is_f32 ? ordered(bits) : (int32_t)bits);
    }
    return 1;
}

/* The same for readings all of one type of four bytes, none of which may be missing, and that are not sent. */
static int is_plain_whole(bytes_in record, bytes_in readings, unsigned char *keys)
{
    uint32_t n = word(record, SENSOR_FEATURES), any = 0;
    if (HAS(HC_INLINE) && keys != NULL) {
        if (word(record, SENSOR_PLAIN) == ALL_F32) return keep_all(1, readings, n, keys);
        return keep_all(0, readings, n, keys);
    }
    if (word(record, SENSOR_PLAIN) == ALL_F32)
        for (; n > 0; n--, readings += 4) { if (!is_finite(get_u32(readings))) return 0; }
    UNROLLED
    for (; n > 0; n--, readings += 4) any |= get_u32(readings) == 0x80000000u;
    return !any;
}

/* Is no reading missing that may not be? On the way the request gets them all, and ensembles that are code their keys. */
static int is_whole(hc_session *s, bytes_in record, bytes_in readings)
{
    bytes_in image = image_of(s);
    bytes_in feature = at(image, H_AT_FEATURES) + (size_t)FEATURE_BYTES * word(record, SENSOR_FEATURE);
    uint32_t at_keys = HAS(HC_INLINE) ? word(record, SENSOR_KEYS) : 0;
    unsigned char *keys = at_keys ? (unsigned char *)s + at_keys : NULL;
    uint32_t n = word(record, SENSOR_FEATURES);
    int is_sent = HAS(HC_FORWARDS) && word(image, H_REQUEST_BYTES) > 0, is_good = 1;
    size_t offset = 0;
    if (word(record, SENSOR_PLAIN) && !is_sent) return is_plain_whole(record, readings, keys);
    for (; n > 0; n--, feature += FEATURE_BYTES) {
        size_t size = is_f64(feature[FEATURE_TYPE]) ? 8 : 4;
        reading_key key;
        int is_there;
        offset = (offset + size - 1) & ~(size - 1);
        key = key_of(feature[FEATURE_TYPE], readings + offset);
        is_there = key != NOTHING;
        if (HAS(HC_INLINE) && keys != NULL) {
            if (size == 8) put_i64(keys + offset, key);
            else put_i32(keys + offset, is_there ? (int32_t)key : INT32_MIN);
        }
        if (is_sent) put_request(s, feature, is_there ? readings + offset : NULL);
        if (!is_there && !feature[FEATURE_NULLABLE]) is_good = 0;
        offset += size;
    }
    return is_good;
}

/* Codes of a sensor's readings; 0, and nothing kept, if one is missing that may not be. */
static int take(hc_session *s, uint32_t sensor, bytes_in readings)
{
    bytes_in image = image_of(s), record = sensor_record(image, sensor);
    bytes_in column = at(image, H_AT_COLUMNS) + (size_t)COLUMN_BYTES * word(record, SENSOR_COLUMN);
    unsigned char *small = part(s, S_SMALL), *wide = part(s, S_WIDE);
    int32_t code = 0;
    if (!is_whole(s, record, readings)) return 0;
    if (HAS(HC_INLINE) && word(record, SENSOR_COLUMNS) == 0) return 1;
    if (word(record, SENSOR_PLAIN) == ALL_DIRECT) { /* a common case, kept short */
        UNROLLED
        for (uint32_t k = word(record, SENSOR_COLUMNS); k > 0; k--, column += COLUMN_BYTES) {
            int32_t v = get_i32(readings + 4 * (size_t)get_u16(column + COLUMN_READING));
            uint32_t rise = direct(v, get_i32(column + COLUMN_A), get_u16(column + COLUMN_B));
            small[get_u16(column + COLUMN_CELL)] = (unsigned char)(1 + rise);
        }
        return 1;
    }
    for (uint32_t k = word(record, SENSOR_COLUMNS); k > 0; k--, column += COLUMN_BYTES) {
        unsigned flags = column[COLUMN_FLAGS], type = flags >> COLUMN_TYPE;
        uint32_t cell = get_u16(column + COLUMN_CELL);
        bytes_in value = readings + 4 * (size_t)get_u16(column + COLUMN_READING);
        reading_key key = key_of(type, value);
        if (key == NOTHING) continue; /* the cell says so already */
        if (column[COLUMN_RULE] != COPY) code = code_of(image, column, type, key);
        if (HAS(HC_WIDE | HC_POLYNOMIALS | HC_NETWORKS) && (flags & COLUMN_IS_WIDE)) put_i16(wide + 2 * (size_t)cell, (int16_t)code);
        else small[cell] = (unsigned char)code;
    }
    return 1;
}

#endif
