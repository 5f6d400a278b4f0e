/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel. hardcase.h is its manual, docs/SPEC-image-v1.md defines every word of the image that it reads.
 *
 * Rules here: the image and what follows a session are only ever touched through the loads and stores below (memcpy of
 * the right width, so no aliasing, no unaligned access); sums that a forged image could overflow are unsigned. */
#include "hardcase.h"
#include "hardcase_config.h"

#include <string.h>

#if defined(__GNUC__)
#define ALIGNED(p, n) __builtin_assume_aligned((p), (n))
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 6")
#else
#define ALIGNED(p, n) (p)
#define INLINE static inline
#define UNROLLED
#endif

/* How many trees are walked side by side: as many as there are registers for their places. */
#ifndef HC_LANES
#if UINTPTR_MAX > 0xFFFFFFFFu
#define HC_LANES 8
#else
#define HC_LANES 1
#endif
#endif

#define FOUR(DO) DO(0) DO(1) DO(2) DO(3)
#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define HAS(part) ((HC_PARTS & (part)) != 0)

typedef const unsigned char *bytes_in;

static inline uint16_t get_u16(bytes_in p) { uint16_t v; memcpy(&v, ALIGNED(p, 2), 2); return v; }
static inline int16_t get_i16(bytes_in p) { int16_t v; memcpy(&v, ALIGNED(p, 2), 2); return v; }
static inline uint32_t get_u32(bytes_in p) { uint32_t v; memcpy(&v, ALIGNED(p, 4), 4); return v; }
static inline int32_t get_i32(bytes_in p) { int32_t v; memcpy(&v, ALIGNED(p, 4), 4); return v; }
static inline int64_t get_i64(bytes_in p) { int64_t v; memcpy(&v, ALIGNED(p, 8), 8); return v; }
static inline void put_i16(unsigned char *p, int16_t v) { memcpy(ALIGNED(p, 2), &v, 2); }
static inline void put_i32(unsigned char *p, int32_t v) { memcpy(ALIGNED(p, 4), &v, 4); }
static inline void put_i64(unsigned char *p, int64_t v) { memcpy(ALIGNED(p, 8), &v, 8); }

/* Sums and products that wrap around instead of being undefined. */
static inline int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t mul64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static inline int64_t shift_down(int64_t v, unsigned n) { return v >= 0 ? v >> n : ~(~v >> n); }

/* ------------------------------------------------------------------ the image: SPEC-image-v1 */

#define MAGIC 0x31494348u /* "HCI1" */

enum header {
    H_MAGIC, H_IMAGE_BYTES, H_SESSION_BYTES, H_FEATURES, H_SENSORS, H_COLUMNS, H_SCORERS, H_NODES,
    H_CLASSES, H_ITEM_SIZE, H_AT_FEATURES, H_AT_SENSORS, H_AT_COLUMNS, H_AT_SCORERS, H_AT_NODES, H_REQUEST_BYTES,
    H_REQUEST_COST, H_REQUEST_COST_HIGH, H_SMALL_LEFT, H_SMALL, H_WIDE_LEFT, H_WIDE, H_STEPS, H_ENTRANTS,
    S_SCORES, S_REQUEST, S_WIDE, S_TRACE, S_WINNERS, S_SENSORS, S_IS_SCORED, S_SMALL,
    H_WORDS
};
enum feature { FEATURE_BYTES = 4, F_UPLINK = 0, F_TYPE = 2, F_NULLABLE = 3, NOT_SENT = 0xFFFF };
enum type { T_I32, T_F32, T_F64 };
enum sensor {
    SENSOR_WORDS = 11, N_FEATURE = 0, N_FEATURES, N_COLUMN, N_COLUMNS, N_COST, N_COSTS, N_SCORERS, N_SCORERS_COUNT,
    N_READING_BYTES, N_PLAIN, N_KEYS
};
enum plain { ALL_I32 = 1, ALL_F32, ALL_DIRECT }; /* of one type and none may be missing; i32 into small cells, cut off */
enum column { COLUMN_BYTES = 12, C_RULE = 0, C_FLAGS = 1, C_CELL = 2, C_A = 4, C_B = 8, C_READING = 10 };
enum column_flags { C_IS_WIDE = 1, C_TYPE = 1 }; /* bit 0; the type is what lies above it */
enum rule { R_AFFINE, R_RANK, R_DIRECT, R_COPY };
enum scorer { K_POLYNOMIAL, K_TREES, K_STACK, K_INLINE, K_LEAF };
enum polynomial {
    P_KIND, P_OUTPUTS, P_FIRST, P_COLUMNS, P_CELLS, P_SUBSTITUTES, P_TERMS, P_DEGREE, P_POSITIONS, P_WEIGHTS,
    P_WEIGHT_BYTES, P_BIAS, P_CONSTANT, P_WORDS
};
enum trees { E_KIND, E_OUTPUTS, E_FIRST, E_BASE, E_GROUPS, E_WORDS };
enum group { GROUP_WORDS = 6, G_LAYOUT = 0, G_OUTPUT, G_WIDTH, G_TREES, G_DEPTH, G_DATA };
enum pointers { POINTER_WORDS = 3, T_NODES = 0, T_LEAVES, T_COUNT };
enum layout { L_SMALL_HEAP, L_WIDE_HEAP, L_SMALL_POINTERS, L_WIDE_POINTERS };
enum stack { Z_KIND, Z_OUTPUTS, Z_FIRST, Z_MEMBERS, Z_WEIGHTS, Z_BIAS, Z_WORDS };
enum leaf { M_KIND, M_OUTPUTS, M_FIRST, M_TREES, M_GROUP, M_TREE, M_WORDS };
enum inlined { I_KIND, I_OUTPUTS, I_FIRST, I_COUNT, I_SENSORS, I_WORDS };
enum node { ACQUIRE, BRANCH, SELECT, ANSWER, FORWARD };
enum branch_rule { THRESHOLD, MARGIN, ARGMAX, TOURNAMENT };

enum { B_KIND, B_SCORER, B_START, B_WIDTH, B_RULE, B_THRESHOLD, B_TARGETS, B_WORDS };
enum { Q_KIND, Q_THEN, Q_OTHERWISE, Q_SENSORS, Q_WORDS }; /* acquire; a forward's fallback stands in both places */
enum { X_KIND, X_OTHERWISE, X_CANDIDATES, X_WORDS, CANDIDATE_WORDS = 4, Y_SIZE = 0, Y_TARGET, Y_COST, Y_COSTS };
enum { A_KIND, A_SCORER, A_START, A_WIDTH, A_VALUE, A_MARGINS, A_AT_MARGINS, A_AT_CONFIDENCES, A_WORDS };

enum flags { BOUGHT = 1, FAILED = 2, WANTED = 4, LACKED = 8, UNPAID = 16, ANYTHING = 32 };
enum phase { RUNNING, NEW, WAIT_SENSORS, WAIT_REPLY, DECIDED };
enum { SMALL_MISSING = 255, MISSING = -32768, CODE_MAX = 32767 };

static inline bytes_in image_of(const hc_session *s) { return (bytes_in)ALIGNED(s->image.bytes, 8); }
static inline uint32_t word(bytes_in record, unsigned k) { return get_u32(record + 4 * k); }
static inline bytes_in at(bytes_in image, unsigned field) { return image + word(image, field); }
static inline unsigned char *part(hc_session *s, unsigned field)
{
    return (unsigned char *)s + word(image_of(s), field);
}
static inline const unsigned char *part_of(const hc_session *s, unsigned field)
{
    return (const unsigned char *)s + word(image_of(s), field);
}
static inline bytes_in sensor_record(bytes_in image, uint32_t k)
{
    return at(image, H_AT_SENSORS) + 4u * SENSOR_WORDS * k;
}
static inline bytes_in node_record(bytes_in image, uint32_t k)
{
    return image + get_u32(at(image, H_AT_NODES) + 4u * k);
}
static inline bytes_in scorer_record(bytes_in image, uint32_t k)
{
    return image + get_u32(at(image, H_AT_SCORERS) + 4u * k);
}

size_t hc_image_bytes(const void *image) { return word(image, H_IMAGE_BYTES); }
size_t hc_session_bytes(const void *image) { return word(image, H_SESSION_BYTES); }
uint32_t hc_largest_item(const void *image) { return word(image, H_ITEM_SIZE); }

size_t hc_readings_bytes(const void *image, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image, H_SENSORS)) return 0;
    return word(sensor_record(image, (uint32_t)sensor), N_READING_BYTES);
}

/* ------------------------------------------------------------------ costs */

static int64_t polynomial(bytes_in coefficients, uint32_t n, int64_t size)
{
    int64_t value = get_i64(coefficients + 8 * (size_t)--n); /* there is always one, and mostly one only */
    while (n-- > 0) value = add64(mul64(value, size), get_i64(coefficients + 8 * (size_t)n));
    return value;
}

static int64_t cost_of(const hc_session *s, uint32_t sensor)
{
    bytes_in record = sensor_record(image_of(s), sensor);
    return polynomial(image_of(s) + word(record, N_COST), word(record, N_COSTS), s->item_size);
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
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++) {
        uint32_t sensor = word(node, Q_WORDS + k);
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
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++) {
        uint32_t sensor = word(node, Q_WORDS + k);
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
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++) {
        unsigned char *flag = flags + word(node, Q_WORDS + k);
        if (mark == LACKED ? *flag & FAILED : !(*flag & BOUGHT)) *flag |= (unsigned char)mark;
    }
}

/* ------------------------------------------------------------------ readings: SPEC-program-v1 sections 2 and 3 */

/* A reading's order-preserving key, or NOTHING if it is missing, which no reading has. Minus zero has the key -1 to
 * itself; no threshold has it, so that it ranks as zero does. */
#if HC_PARTS & HC_F64
typedef int64_t reading_key;
#define NOTHING INT64_MIN
#else
typedef int32_t reading_key;
#define NOTHING INT32_MIN
#endif

static inline int is_f64(unsigned type) { return HAS(HC_F64) && type == T_F64; }

static inline int is_finite(uint32_t bits) { return (bits & 0x7FFFFFFFu) < 0x7F800000u; }
static inline int32_t ordered(uint32_t bits) { return (int32_t)(bits ^ (0u - (bits >> 31)) >> 1); }

static inline reading_key key_of(unsigned type, bytes_in p)
{
    if (!is_f64(type)) {
        uint32_t bits = get_u32(p);
        if (type == T_I32) return bits == 0x80000000u ? NOTHING : (int32_t)bits;
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
    if (type == T_I32) {
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
    int64_t low = get_i64(rule + 32), high = get_i64(rule + 40);
    int64_t v = add64(mul64(fixed(type, key, get_i64(rule)), get_i64(rule + 8)), get_i64(rule + 16));
    v = shift_down(v, (unsigned)get_i64(rule + 24));
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
    uint32_t a = get_u32(column + C_A), b = get_u16(column + C_B);
    int is_wide = HAS(HC_WIDE | HC_POLYNOMIALS) && (column[C_FLAGS] & C_IS_WIDE);
    int32_t floor = is_wide ? -CODE_MAX : 1;
    if (column[C_RULE] == R_DIRECT) return floor + (int32_t)direct((int32_t)key, (int32_t)a, b);
    if (!HAS(HC_AFFINE) || column[C_RULE] == R_RANK)
        return floor + (int32_t)(is_f64(type) ? rank64(image + a, b, key) : rank32(image + a, b, (int32_t)key));
    return (int32_t)(affine(type, key, image + a) - (is_wide ? 0 : get_i64(image + a + 32) - 1));
}

static const unsigned char TYPE_BYTES[3] = {4, 4, 8};

/* Write one reading into the request; NULL: missing. Minus zero becomes zero. */
static void put_request(hc_session *s, bytes_in feature, bytes_in value)
{
    static const unsigned char MISSING_MARK[3][8] = {
        {0, 0, 0, 0x80}, {0, 0, 0xC0, 0x7F}, {0, 0, 0, 0, 0, 0, 0xF8, 0x7F}};
    static const unsigned char MINUS_ZERO[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    unsigned type = feature[F_TYPE];
    size_t n = TYPE_BYTES[type];
    unsigned char *out;
    if (get_u16(feature + F_UPLINK) == NOT_SENT) return;
    out = part(s, S_REQUEST) + get_u16(feature + F_UPLINK);
    if (value == NULL) memcpy(out, MISSING_MARK[type], n);
    else if (type != T_I32 && memcmp(value, MINUS_ZERO + 8 - n, n) == 0) memset(out, 0, n);
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
    uint32_t n = word(record, N_FEATURES), any = 0;
    if (HAS(HC_INLINE) && keys != NULL) {
        if (word(record, N_PLAIN) == ALL_F32) return keep_all(1, readings, n, keys);
        return keep_all(0, readings, n, keys);
    }
    if (word(record, N_PLAIN) == ALL_F32)
        for (; n > 0; n--, readings += 4) { if (!is_finite(get_u32(readings))) return 0; }
    UNROLLED
    for (; n > 0; n--, readings += 4) any |= get_u32(readings) == 0x80000000u;
    return !any;
}

/* Is no reading missing that may not be? On the way the request gets them all, and ensembles that are code their keys. */
static int is_whole(hc_session *s, bytes_in record, bytes_in readings)
{
    bytes_in image = image_of(s), feature = at(image, H_AT_FEATURES) + (size_t)FEATURE_BYTES * word(record, N_FEATURE);
    unsigned char *keys = HAS(HC_INLINE) && word(record, N_KEYS) ? (unsigned char *)s + word(record, N_KEYS) : NULL;
    uint32_t n = word(record, N_FEATURES);
    int is_sent = HAS(HC_FORWARDS) && word(image, H_REQUEST_BYTES) > 0, is_good = 1;
    size_t offset = 0;
    if (word(record, N_PLAIN) && !is_sent) return is_plain_whole(record, readings, keys);
    for (; n > 0; n--, feature += FEATURE_BYTES) {
        size_t size = is_f64(feature[F_TYPE]) ? 8 : 4;
        reading_key key;
        int is_there;
        offset = (offset + size - 1) & ~(size - 1);
        key = key_of(feature[F_TYPE], readings + offset);
        is_there = key != NOTHING;
        if (HAS(HC_INLINE) && keys != NULL) {
            if (size == 8) put_i64(keys + offset, key);
            else put_i32(keys + offset, is_there ? (int32_t)key : INT32_MIN);
        }
        if (is_sent) put_request(s, feature, is_there ? readings + offset : NULL);
        if (!is_there && !feature[F_NULLABLE]) is_good = 0;
        offset += size;
    }
    return is_good;
}

/* Codes of a sensor's readings; 0, and nothing kept, if one is missing that may not be. */
static int take(hc_session *s, uint32_t sensor, bytes_in readings)
{
    bytes_in image = image_of(s), record = sensor_record(image, sensor);
    bytes_in column = at(image, H_AT_COLUMNS) + (size_t)COLUMN_BYTES * word(record, N_COLUMN);
    unsigned char *small = part(s, S_SMALL), *wide = part(s, S_WIDE);
    int32_t code = 0;
    if (!is_whole(s, record, readings)) return 0;
    if (HAS(HC_INLINE) && word(record, N_COLUMNS) == 0) return 1;
    if (word(record, N_PLAIN) == ALL_DIRECT) { /* a common case, kept short */
        UNROLLED
        for (uint32_t k = word(record, N_COLUMNS); k > 0; k--, column += COLUMN_BYTES) {
            int32_t v = get_i32(readings + 4 * (size_t)get_u16(column + C_READING));
            uint32_t rise = direct(v, get_i32(column + C_A), get_u16(column + C_B));
            small[get_u16(column + C_CELL)] = (unsigned char)(1 + rise);
        }
        return 1;
    }
    for (uint32_t k = word(record, N_COLUMNS); k > 0; k--, column += COLUMN_BYTES) {
        unsigned flags = column[C_FLAGS], type = flags >> C_TYPE;
        uint32_t cell = get_u16(column + C_CELL);
        bytes_in value = readings + 4 * (size_t)get_u16(column + C_READING);
        reading_key key = key_of(type, value);
        if (key == NOTHING) continue; /* the cell says so already */
        if (column[C_RULE] != R_COPY) code = code_of(image, column, type, key);
        if (HAS(HC_WIDE | HC_POLYNOMIALS) && (flags & C_IS_WIDE)) put_i16(wide + 2 * (size_t)cell, (int16_t)code);
        else small[cell] = (unsigned char)code;
    }
    return 1;
}

/* ------------------------------------------------------------------ scorers: SPEC-program-v1 section 4.1 */

static void polynomial_scores(hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in cells = image + word(scorer, P_CELLS), substitutes = image + word(scorer, P_SUBSTITUTES);
    bytes_in position = image + word(scorer, P_POSITIONS), weights = image + word(scorer, P_WEIGHTS);
    bytes_in bias = image + word(scorer, P_BIAS), codes = part(s, S_WIDE);
    uint32_t n_outputs = word(scorer, P_OUTPUTS), n_columns = word(scorer, P_COLUMNS), n_terms = word(scorer, P_TERMS);
    uint32_t degree = word(scorer, P_DEGREE);
    int is_byte = word(scorer, P_WEIGHT_BYTES) == 1;
    int32_t constant = get_i32(scorer + 4 * P_CONSTANT);
    for (uint32_t o = 0; o < n_outputs; o++) put_i64(scores + 8 * (size_t)o, get_i64(bias + 8 * (size_t)o));
    for (uint32_t t = 0; t < n_terms; t++) {
        int64_t product = 1;
        for (uint32_t j = 0; j < degree; j++, position += 2) {
            uint32_t k = get_u16(position);
            int32_t x = constant;
            if (k < n_columns) {
                x = get_i16(codes + 2 * (size_t)get_u16(cells + 2 * (size_t)k));
                if (x == MISSING) x = get_i16(substitutes + 2 * (size_t)k);
            }
            product = mul64(product, x);
        }
        if (product == 0) continue; /* pixels and histograms are mostly 0 */
        for (uint32_t o = 0; o < n_outputs; o++) {
            size_t k = (size_t)o * n_terms + t;
            int32_t w = is_byte ? (int32_t)weights[k] - 2 * (weights[k] & 0x80) : get_i16(weights + 2 * k);
            put_i64(scores + 8 * (size_t)o, add64(get_i64(scores + 8 * (size_t)o), mul64(w, product)));
        }
    }
}

static inline void add_score(unsigned char *scores, size_t k, int64_t value)
{
    put_i64(scores + 8 * k, add64(get_i64(scores + 8 * k), value));
}

/* One step down a complete tree: a cell and a threshold for each node, of which the first are not used; root 1. Right,
 * which is the odd child, where the code is above the threshold. */
INLINE size_t step(int is_wide, bytes_in codes, bytes_in cells, bytes_in thresholds, size_t node)
{
    int32_t code, threshold;
    if (is_wide) {
        code = get_i16(codes + 2 * (size_t)get_u16(cells + 2 * node));
        threshold = get_i16(thresholds + 2 * node);
    } else {
        code = codes[cells[node]];
        threshold = thresholds[node];
    }
    return 2 * node + ((uint32_t)(threshold - code) >> 31);
}

#define BEGIN(k) size_t at##k = 1;
#define STEP(k) at##k = step(is_wide, codes, tree + k * stride, thresholds + k * stride, at##k);
#define LEAF(k) bytes_in leaf##k = tree + k * stride + inner + 2 * width * (at##k - size);
#define VALUE(k) +get_i16(leaf##k + 2 * j)

/* Walk n complete trees, many side by side so that their loads overlap, and add their leaves up. It is inlined where
 * depth and width are constants. */
INLINE void walk(int is_wide, unsigned depth, size_t width, bytes_in codes, bytes_in tree, uint32_t n,
                 unsigned char *scores)
{
    const size_t size = (size_t)1 << depth, inner = (is_wide ? 4 : 2) * size, stride = inner + 2 * width * size;
    bytes_in thresholds = tree + inner / 2; /* a pointer of its own: Thumb has no load at base + index + constant */
    uint32_t sum = 0; /* of leaves of one value */
#if HC_LANES == 8
    for (; n >= 8; n -= 8, tree += 8 * stride, thresholds += 8 * stride) {
        EIGHT(BEGIN)
        for (unsigned d = 0; d < depth; d++) { EIGHT(STEP) }
        {
            EIGHT(LEAF)
            for (size_t j = 0; j < width; j++) {
                int32_t value = EIGHT(VALUE);
                if (width == 1) sum += (uint32_t)value;
                else add_score(scores, j, value);
            }
        }
    }
#endif
    for (; n > 0; n--, tree += stride, thresholds += stride) {
        BEGIN(0)
        UNROLLED
        for (unsigned d = 0; d < depth; d++) STEP(0)
        {
            LEAF(0)
            for (size_t j = 0; j < width; j++) {
                if (width == 1) sum += (uint32_t)get_i16(leaf0);
                else add_score(scores, j, get_i16(leaf0 + 2 * j));
            }
        }
    }
    if (width == 1) add_score(scores, 0, (int32_t)sum);
}

static void walk_small(unsigned depth, size_t width, bytes_in cells, bytes_in tree, uint32_t n, unsigned char *scores)
{
    if (width == 1) {
        if (HAS(HC_WALK_3) && depth == 3) { walk(0, 3, 1, cells, tree, n, scores); return; }
        if (HAS(HC_WALK_4) && depth == 4) { walk(0, 4, 1, cells, tree, n, scores); return; }
        if (HAS(HC_WALK_5) && depth == 5) { walk(0, 5, 1, cells, tree, n, scores); return; }
        if (HAS(HC_WALK_6) && depth == 6) { walk(0, 6, 1, cells, tree, n, scores); return; }
    }
    if (HAS(HC_WALK_ANY)) walk(0, depth, width, cells, tree, n, scores);
}

static void walk_wide(unsigned depth, size_t width, bytes_in cells, bytes_in tree, uint32_t n, unsigned char *scores)
{
    walk(1, depth, width, cells, tree, n, scores);
}

/* One step in a tree with pointers; a negative node is a leaf, and stays. */
INLINE int32_t follow(int is_wide, bytes_in cells, bytes_in nodes, int32_t node)
{
    bytes_in p = nodes + (is_wide ? 8 : 6) * (size_t)(node < 0 ? 0 : node);
    int32_t child;
    if (is_wide) child = get_i16(p + 4 + 2 * (get_i16(cells + 2 * (size_t)get_u16(p)) > get_i16(p + 2)));
    else child = get_i16(p + 2 + 2 * (cells[p[0]] > p[1]));
    return node < 0 ? node : child;
}

#define ENTER(k) int32_t at##k = 0; bytes_in nodes##k = image + word(tree + 4 * POINTER_WORDS * k, T_NODES);
#define FOLLOW(k) at##k = follow(is_wide, cells, nodes##k, at##k);
#define REACHED(k) & at##k
#define POINTED(k) bytes_in leaf##k = image + word(tree + 4 * POINTER_WORDS * k, T_LEAVES) + 2 * width * (size_t)(-1 - at##k);

/* As walk, for trees with pointers. */
INLINE void wander(int is_wide, size_t width, bytes_in cells, bytes_in image, bytes_in tree, uint32_t n,
                   unsigned char *scores)
{
#if HC_LANES == 8
    for (; n >= 4; n -= 4, tree += 4 * 4 * POINTER_WORDS) {
        FOUR(ENTER)
        do { FOUR(FOLLOW) } while ((-1 FOUR(REACHED)) >= 0);
        {
            FOUR(POINTED)
            for (size_t j = 0; j < width; j++) add_score(scores, j, FOUR(VALUE));
        }
    }
#endif
    for (; n > 0; n--, tree += 4 * POINTER_WORDS) {
        ENTER(0)
        do { FOLLOW(0) } while (at0 >= 0);
        {
            POINTED(0)
            for (size_t j = 0; j < width; j++) add_score(scores, j, get_i16(leaf0 + 2 * j));
        }
    }
}

/* The leaf that the session's codes reach in tree k of a group: its first value. */
static bytes_in leaf_of(const hc_session *s, bytes_in image, bytes_in group, uint32_t k)
{
    uint32_t width = word(group, G_WIDTH), depth = word(group, G_DEPTH), layout = word(group, G_LAYOUT);
    int is_wide = layout == L_WIDE_HEAP || layout == L_WIDE_POINTERS;
    bytes_in data = image + word(group, G_DATA), cells = part_of(s, is_wide ? S_WIDE : S_SMALL);
    if (layout == L_SMALL_HEAP || layout == L_WIDE_HEAP) {
        size_t size = (size_t)1 << depth, inner = (is_wide ? 4 : 2) * size, node = 1;
        data += k * (inner + 2 * width * size);
        for (uint32_t d = 0; d < depth; d++) node = step(is_wide, cells, data, data + inner / 2, node);
        return data + inner + 2 * width * (node - size);
    } else {
        bytes_in tree = data + 4 * (size_t)POINTER_WORDS * k;
        int32_t node = 0;
        do node = follow(is_wide, cells, image + word(tree, T_NODES), node); while (node >= 0);
        return image + word(tree, T_LEAVES) + 2 * (size_t)width * (size_t)(-1 - node);
    }
}

static void add_group(const hc_session *s, bytes_in image, bytes_in group, unsigned char *scores)
{
    uint32_t width = word(group, G_WIDTH), depth = word(group, G_DEPTH), n = word(group, G_TREES);
    bytes_in data = image + word(group, G_DATA);
    uint32_t layout = word(group, G_LAYOUT);
    if (layout == L_SMALL_HEAP)
        walk_small(depth, width, part_of(s, S_SMALL), data, n, scores);
    else if (HAS(HC_WIDE) && layout == L_WIDE_HEAP)
        walk_wide(depth, width, part_of(s, S_WIDE), data, n, scores);
    else if (HAS(HC_POINTERS) && layout == L_SMALL_POINTERS)
        wander(0, width, part_of(s, S_SMALL), image, data, n, scores);
    else if (HAS(HC_POINTERS) && HAS(HC_WIDE))
        wander(1, width, part_of(s, S_WIDE), image, data, n, scores);
}

static void tree_scores(const hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in base = image + word(scorer, E_BASE), group = scorer + 4 * E_WORDS;
    for (uint32_t o = 0; o < word(scorer, E_OUTPUTS); o++) put_i64(scores + 8 * (size_t)o, get_i32(base + 4 * (size_t)o));
    for (uint32_t g = word(scorer, E_GROUPS); g > 0; g--, group += 4 * GROUP_WORDS)
        add_group(s, image, group, scores + 8 * (size_t)word(group, G_OUTPUT));
}

/* The value of tree ``tree`` of a group of ensemble ``trees``, for the session's codes. */
static int32_t member_value(const hc_session *s, bytes_in image, uint32_t trees, uint32_t group, uint32_t tree)
{
    bytes_in record = scorer_record(image, trees) + 4 * (E_WORDS + GROUP_WORDS * (size_t)group);
    return get_i16(leaf_of(s, image, record, tree));
}

/* The same of a tree that several stacks share: walked once, until a sensor that it reads has been fed. */
static int32_t shared_value(hc_session *s, bytes_in image, bytes_in leaf, uint32_t number)
{
    unsigned char *value = part(s, S_SCORES) + 8 * (size_t)word(leaf, M_FIRST), *is_scored = part(s, S_IS_SCORED) + number;
    if (!*is_scored) {
        put_i64(value, member_value(s, image, word(leaf, M_TREES), word(leaf, M_GROUP), word(leaf, M_TREE)));
        *is_scored = 1;
    }
    return (int32_t)get_i64(value);
}

static void stack_scores(hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in member = scorer + 4 * Z_WORDS, weights = image + word(scorer, Z_WEIGHTS), bias = image + word(scorer, Z_BIAS);
    uint32_t n_outputs = word(scorer, Z_OUTPUTS), n = word(scorer, Z_MEMBERS);
    for (uint32_t o = 0; o < n_outputs; o++) put_i64(scores + 8 * (size_t)o, get_i64(bias + 8 * (size_t)o));
    for (uint32_t m = 0; m < n; m++, member += 12) {
        bytes_in below = scorer_record(image, word(member, 0));
        int32_t z = word(below, M_KIND) == K_LEAF ? shared_value(s, image, below, word(member, 0))
                                                  : member_value(s, image, word(member, 0), word(member, 1), word(member, 2));
        for (uint32_t o = 0; o < n_outputs; o++) {
            int32_t w = get_i16(weights + 2 * ((size_t)o * n + m));
            put_i64(scores + 8 * (size_t)o, add64(get_i64(scores + 8 * (size_t)o), (int64_t)w * z));
        }
    }
}

#if HC_PARTS & HC_INLINE
/* The scores of an ensemble that is code, which first learns of each sensor that gave nothing: all its readings are
 * missing. Two of the lowest words are below the key of every f64, too. */
static void inline_scores(hc_session *s, uint32_t number, bytes_in scorer, unsigned char *scores)
{
    bytes_in image = image_of(s), sensor = image + word(scorer, I_SENSORS);
    const unsigned char *flags = part(s, S_SENSORS);
    for (uint32_t n = word(scorer, I_COUNT); n > 0; n--, sensor += 2) {
        bytes_in record = sensor_record(image, get_u16(sensor));
        unsigned char *key = (unsigned char *)s + word(record, N_KEYS);
        if (flags[get_u16(sensor)] == BOUGHT) continue;
        for (uint32_t k = word(record, N_READING_BYTES) / 4; k > 0; k--, key += 4) put_i32(key, INT32_MIN);
    }
    hc_inline(number, (unsigned char *)s + sizeof *s, part(s, S_SMALL), part(s, S_WIDE), scores);
}
#endif

/* The scores of a scorer, computed unless they are known; 8 bytes each. */
static const unsigned char *scores_of(hc_session *s, uint32_t scorer)
{
    bytes_in image = image_of(s), record = scorer_record(image, scorer);
    unsigned char *scores = part(s, S_SCORES) + 8 * (size_t)word(record, P_FIRST);
    unsigned char *is_scored = part(s, S_IS_SCORED) + scorer;
    if (!*is_scored) {
        uint32_t kind = word(record, P_KIND);
        if (kind == K_TREES) tree_scores(s, image, record, scores);
        if (HAS(HC_POLYNOMIALS) && kind == K_POLYNOMIAL) polynomial_scores(s, image, record, scores);
        if (HAS(HC_STACKS) && kind == K_STACK) stack_scores(s, image, record, scores);
#if HC_PARTS & HC_INLINE
        if (kind == K_INLINE) inline_scores(s, scorer, record, scores);
#endif
        *is_scored = 1;
    }
    return scores;
}

static int64_t score(const unsigned char *scores, uint32_t k) { return get_i64(scores + 8 * (size_t)k); }

/* Best minus second best; of one score, its distance from 0. *best: the index of the best, the first of equals. */
static int64_t margin_of(const unsigned char *scores, uint32_t n, uint32_t *best)
{
    int64_t first = score(scores, 0), second;
    *best = 0;
    if (n == 1) {
        *best = first > 0;
        return first < 0 ? (int64_t)(0 - (uint64_t)first) : first;
    }
    second = INT64_MIN;
    for (uint32_t k = 1; k < n; k++) {
        int64_t v = score(scores, k);
        if (v > first) {
            second = first;
            first = v;
            *best = k;
        } else if (v > second) {
            second = v;
        }
    }
    return (int64_t)((uint64_t)first - (uint64_t)second);
}

/* ------------------------------------------------------------------ nodes: SPEC-program-v1 section 4.2 */

/* Targets that acquire a sensor with one of the flags ``without`` cannot be had; with ANYTHING all can. */
static int can_have(const hc_session *s, uint32_t target, unsigned without)
{
    bytes_in node = node_record(image_of(s), target);
    if (without == ANYTHING) return 1;
    if (word(node, Q_KIND) == ACQUIRE) return can_buy(s, node, without);
    if (HAS(HC_FORWARDS) && word(node, Q_KIND) == FORWARD)
        return fits(s, add64(price(s, node), request_cost(s)));
    return 1;
}

static uint32_t tournament(hc_session *s, bytes_in node, const unsigned char *scores, unsigned without)
{
    uint32_t n = word(node, B_TARGETS), none = 1;
    bytes_in target = node + 4 * B_WORDS, match = target + 4 * (size_t)n;
    unsigned char *winners = part(s, S_WINNERS); /* entrants are targets, none of them is UINT16_MAX */
    for (uint32_t k = 0; k < n; k++) {
        int16_t entrant = can_have(s, word(target, k), without) ? (int16_t)k : -1;
        put_i16(winners + 2 * (size_t)k, entrant);
        if (entrant >= 0) none = 0;
    }
    for (uint32_t k = 0; none && k < n; k++) put_i16(winners + 2 * (size_t)k, (int16_t)k);
    for (uint32_t m = 0; m + 1 < n; m++, match += 8) {
        int16_t a = get_i16(winners + 2 * (size_t)word(match, 0)), b = get_i16(winners + 2 * (size_t)word(match, 1));
        int16_t winner = a < 0 || (b >= 0 && score(scores, m) > 0) ? b : a;
        put_i16(winners + 2 * (size_t)(n + m), winner);
    }
    return (uint32_t)get_i16(winners + 2 * (size_t)(2 * n - 2));
}

static uint32_t choose(hc_session *s, bytes_in node, const unsigned char *scores, unsigned without)
{
    uint32_t n = word(node, B_TARGETS), width = word(node, B_WIDTH), rule = word(node, B_RULE), best;
    bytes_in target = node + 4 * B_WORDS;
    int64_t margin;
    if (HAS(HC_TOURNAMENTS) && rule == TOURNAMENT) {
        best = tournament(s, node, scores, without);
        return word(target, best < n ? best : 0);
    }
    margin = margin_of(scores, width, &best);
    if (rule != ARGMAX) {
        int64_t threshold = get_i64(image_of(s) + word(node, B_THRESHOLD));
        best = rule == THRESHOLD ? score(scores, 0) > threshold : margin >= threshold;
    }
    if (!can_have(s, word(target, best), without)) {
        uint32_t next = best;
        for (uint32_t k = 0; k < n; k++) {
            if (k == best || !can_have(s, word(target, k), without)) continue;
            if (next == best || (width > 1 && rule == ARGMAX && score(scores, k) > score(scores, next))) next = k;
        }
        best = next;
    }
    return word(target, best);
}

int hc_move(void *image, uint32_t node, int64_t threshold)
{
    bytes_in record;
    if (node >= word(image, H_NODES)) return HC_ERROR_ARGUMENT;
    record = node_record(image, node);
    if (word(record, B_KIND) != BRANCH || word(record, B_RULE) > MARGIN) return HC_ERROR_ARGUMENT;
    put_i64((unsigned char *)image + word(record, B_THRESHOLD), threshold);
    return 0;
}

static uint32_t branch(hc_session *s, bytes_in node)
{
    const unsigned char *scores = scores_of(s, word(node, B_SCORER)) + 8 * (size_t)word(node, B_START);
    uint32_t chosen = choose(s, node, scores, FAILED);
    if (s->has_failed) {
        bytes_in wanted = node_record(image_of(s), choose(s, node, scores, 0));
        if (word(wanted, Q_KIND) == ACQUIRE) note(s, wanted, LACKED);
    }
    if (s->budget != HC_NO_BUDGET) {
        bytes_in own = node_record(image_of(s), choose(s, node, scores, ANYTHING));
        if (word(own, Q_KIND) == ACQUIRE && !can_buy(s, own, 0)) note(s, own, UNPAID);
    }
    return chosen;
}

static uint32_t select_model(const hc_session *s, bytes_in node)
{
    bytes_in candidate = node + 4 * X_WORDS;
    for (uint32_t k = word(node, X_CANDIDATES); k > 0; k--, candidate += 4 * CANDIDATE_WORDS) {
        if ((uint32_t)s->item_size > word(candidate, Y_SIZE)) continue;
        if (fits(s, polynomial(image_of(s) + word(candidate, Y_COST), word(candidate, Y_COSTS), s->item_size)))
            return word(candidate, Y_TARGET);
    }
    return word(node, X_OTHERWISE);
}

static void decide(hc_session *s, int64_t result, int confidence, unsigned route)
{
    s->result = result;
    s->confidence = (uint16_t)confidence;
    s->route = (uint8_t)route;
    s->phase = DECIDED;
}

/* A score times 2^shift, rounded to the nearest integer, halves up. A value's word holds 1 and, from bit 8, the shift. */
static int64_t shifted(int64_t v, uint32_t value)
{
    uint32_t left = value >> 8, right = 256 - left;
    if (left < 128) return mul64(v, (int64_t)((uint64_t)1 << left));
    return shift_down(add64(v, (int64_t)((uint64_t)1 << (right - 1))), right);
}

static void answer(hc_session *s, bytes_in node)
{
    const unsigned char *scores = scores_of(s, word(node, A_SCORER)) + 8 * (size_t)word(node, A_START);
    bytes_in image = image_of(s), margins = image + word(node, A_AT_MARGINS);
    uint32_t best, k = 0;
    int64_t margin = margin_of(scores, word(node, A_WIDTH), &best), result = best;
    if (word(node, A_VALUE)) {
        margin = score(scores, 0);
        result = shifted(margin, word(node, A_VALUE));
    }
    while (k < word(node, A_MARGINS) && get_i64(margins + 8 * (size_t)k) <= margin) k++;
    decide(s, result, get_u16(image + word(node, A_AT_CONFIDENCES) + 2 * (size_t)k),
           s->is_degraded ? HC_ROUTE_DEGRADED : HC_ROUTE_LOCAL);
}

/* Ask for the sensors of a node that have none of these flags; 0 if there are none. */
static int want(hc_session *s, bytes_in node, unsigned without)
{
    unsigned char *flags = part(s, S_SENSORS);
    int any = 0;
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++) {
        unsigned char *flag = flags + word(node, Q_WORDS + k);
        if (*flag & without) continue;
        *flag |= WANTED;
        any = 1;
    }
    s->cursor = 0;
    if (any) s->phase = WAIT_SENSORS;
    return any;
}

static void acquire(hc_session *s, bytes_in node)
{
    if (can_buy(s, node, FAILED)) {
        if (!want(s, node, BOUGHT)) s->at = word(node, Q_THEN);
    } else {
        if (!can_buy(s, node, 0)) note(s, node, UNPAID);
        note(s, node, LACKED);
        s->at = word(node, Q_OTHERWISE);
    }
}

static void write_missing(hc_session *s)
{
    bytes_in image = image_of(s);
    const unsigned char *flags = part(s, S_SENSORS);
    for (uint32_t k = 0; k < word(image, H_SENSORS); k++) {
        bytes_in record = sensor_record(image, k);
        bytes_in feature = at(image, H_AT_FEATURES) + (size_t)FEATURE_BYTES * word(record, N_FEATURE);
        if ((flags[k] & (BOUGHT | FAILED)) == BOUGHT) continue;
        for (uint32_t f = word(record, N_FEATURES); f > 0; f--, feature += FEATURE_BYTES) put_request(s, feature, NULL);
    }
}

static void forward(hc_session *s, bytes_in node)
{
    if (!s->has_cloud) {
        s->is_degraded = 1;
        s->at = word(node, Q_THEN);
    } else if (!fits(s, add64(price(s, node), request_cost(s)))) {
        s->at = word(node, Q_THEN);
    } else if (!want(s, node, BOUGHT | FAILED)) {
        note(s, node, LACKED);
        s->spent = add64(s->spent, request_cost(s));
        write_missing(s);
        s->phase = WAIT_REPLY;
    }
}

/* ------------------------------------------------------------------ the protocol */

int hc_start(hc_session *s, const void *image, int64_t budget, int32_t item_size, int cloud)
{
    bytes_in in = (bytes_in)ALIGNED(image, 8);
    unsigned char *wide;
    uint32_t small_left = word(in, H_SMALL_LEFT), small = word(in, H_SMALL), n_wide = word(in, H_WIDE);
    if (item_size < 1 || (uint32_t)item_size > word(in, H_ITEM_SIZE)) return HC_ERROR_ARGUMENT;
    s->result = s->spent = s->saved = 0;
    s->confidence = s->steps = 0;
    s->route = s->is_degraded = 0;
    s->phase = NEW;
    s->has_cloud = cloud != 0;
    s->item_size = item_size;
    s->at = s->cursor = s->has_failed = 0;
    s->budget = budget;
    s->image.eight = 0;
    s->image.bytes = in;
    memset(part(s, S_SENSORS), 0, word(in, S_SMALL) - word(in, S_SENSORS) + small_left); /* three parts, side by side */
    if (small > small_left) memset(part(s, S_SMALL) + small_left, SMALL_MISSING, small - small_left);
    wide = part(s, S_WIDE);
    for (uint32_t k = 0; k < n_wide; k++)
        put_i16(wide + 2 * (size_t)k, k < word(in, H_WIDE_LEFT) ? MISSING : CODE_MAX);
    return 0;
}

int hc_dead(hc_session *s, int sensor)
{
    if (s->phase != NEW) return HC_ERROR_ORDER;
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return HC_ERROR_ARGUMENT;
    part(s, S_SENSORS)[sensor] |= FAILED;
    s->has_failed = 1;
    return 0;
}

int hc_next(hc_session *s)
{
    unsigned char *trace = part(s, S_TRACE);
    bytes_in image = image_of(s);
    if (s->phase == WAIT_SENSORS && hc_wanted(s) < 0) s->phase = RUNNING;
    if (s->phase == NEW) {
        s->phase = RUNNING;
        put_i16(trace, 0);
        s->steps = 1;
    }
    while (s->phase == RUNNING) {
        bytes_in node = node_record(image, s->at);
        uint32_t before = s->at;
        uint32_t kind = word(node, 0);
        if (kind == ACQUIRE) acquire(s, node);
        else if (HAS(HC_BRANCHES) && kind == BRANCH) s->at = branch(s, node);
        else if (HAS(HC_SELECTS) && kind == SELECT) s->at = select_model(s, node);
        else if (HAS(HC_FORWARDS) && kind == FORWARD) forward(s, node);
        else answer(s, node);
        if (s->at != before && s->steps < word(image, H_STEPS)) put_i16(trace + 2 * (size_t)s->steps++, (int16_t)s->at);
    }
    return s->phase == WAIT_SENSORS ? HC_NEED_SENSORS : s->phase == WAIT_REPLY ? HC_NEED_REPLY : HC_DECIDED;
}

int hc_wanted_next(const hc_session *s, int *from)
{
    bytes_in node = node_record(image_of(s), s->at);
    const unsigned char *flags = part_of(s, S_SENSORS);
    if (s->phase != WAIT_SENSORS) return -1;
    for (uint32_t k = (uint32_t)*from; k < word(node, Q_SENSORS); k++) {
        uint32_t sensor = word(node, Q_WORDS + k);
        if (flags[sensor] & WANTED) {
            *from = (int)k + 1;
            return (int)sensor;
        }
    }
    return -1;
}

int hc_wanted(const hc_session *s)
{
    int from = (int)s->cursor;
    return hc_wanted_next(s, &from);
}

int hc_feed_at(hc_session *s, int sensor, const void *readings, int64_t cost)
{
    bytes_in image = image_of(s), record;
    unsigned char *flags = part(s, S_SENSORS) + sensor;
    int64_t declared;
    int from = (int)s->cursor;
    if (s->phase != WAIT_SENSORS) return HC_ERROR_ORDER;
    if (sensor < 0 || (uint32_t)sensor >= word(image, H_SENSORS) || !(*flags & WANTED)) return HC_ERROR_ORDER;
    if (sensor == hc_wanted_next(s, &from)) s->cursor = (uint32_t)from; /* behind it, so that feeding all is linear */
    record = sensor_record(image, (uint32_t)sensor);
    declared = cost_of(s, (uint32_t)sensor);
    s->spent = add64(s->spent, declared);
    if (cost >= 0 && cost < declared) s->saved = add64(s->saved, declared - cost);
    *flags = BOUGHT;
    if (readings == NULL || !take(s, (uint32_t)sensor, readings)) {
        *flags |= FAILED;
        s->has_failed = 1;
    }
    for (uint32_t k = 0; k < word(record, N_SCORERS_COUNT); k++)
        part(s, S_IS_SCORED)[get_u16(image + word(record, N_SCORERS) + 2 * (size_t)k)] = 0;
    return 0;
}

int hc_feed(hc_session *s, int sensor, const void *readings) { return hc_feed_at(s, sensor, readings, -1); }

const unsigned char *hc_request(const hc_session *s) { return part_of(s, S_REQUEST); }
size_t hc_request_bytes(const hc_session *s) { return word(image_of(s), H_REQUEST_BYTES); }

int hc_reply(hc_session *s, int64_t result, int confidence)
{
    int64_t n_classes = word(image_of(s), H_CLASSES);
    if (s->phase != WAIT_REPLY) return HC_ERROR_ORDER;
    if (confidence < 0 || confidence > 10000 || (n_classes > 0 && (result < 0 || result >= n_classes)))
        return HC_ERROR_ARGUMENT;
    decide(s, result, confidence, HC_ROUTE_CLOUD);
    return 0;
}

int hc_no_reply(hc_session *s)
{
    if (s->phase != WAIT_REPLY) return HC_ERROR_ORDER;
    s->is_degraded = 1;
    s->at = word(node_record(image_of(s), s->at), Q_THEN);
    s->phase = RUNNING;
    if (s->steps < word(image_of(s), H_STEPS)) put_i16(part(s, S_TRACE) + 2 * (size_t)s->steps++, (int16_t)s->at);
    return 0;
}

int hc_resend(hc_session *s)
{
    if (s->phase != WAIT_REPLY) return HC_ERROR_ORDER;
    if (!fits(s, request_cost(s))) return 0;
    s->spent = add64(s->spent, request_cost(s));
    return 1;
}

int hc_elapsed(hc_session *s, int64_t amount)
{
    if (s->phase == DECIDED) return HC_ERROR_ORDER;
    if (amount < 0 || amount > INT64_C(0x4000000000000000)) return HC_ERROR_ARGUMENT;
    s->spent = amount;
    s->saved = 0;
    return 0;
}

int hc_was_bought(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return part_of(s, S_SENSORS)[sensor] & BOUGHT;
}

int hc_has_failed(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return (part_of(s, S_SENSORS)[sensor] & LACKED) != 0;
}

int hc_was_unpaid(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return (part_of(s, S_SENSORS)[sensor] & UNPAID) != 0;
}

int hc_visited(const hc_session *s, int step)
{
    if (step < 0 || step >= s->steps) return -1;
    return get_u16(part_of(s, S_TRACE) + 2 * (size_t)step);
}

/* ------------------------------------------------------------------ the check: docs/SPEC-image-v1.md section 5 */

typedef struct {
    bytes_in image;
    uint32_t n_bytes;
    uint64_t work; /* elements that may still be looked at: a forged image must not keep us for long */
} checked;

/* As in hardcase_edge/program/limits.py: what the verifier proves, this check must not refuse. */
enum {
    MOST_SENSORS = 8192, MOST_NODES = 16384, MOST_TARGETS = 16384, MOST_SCORERS = 65535, MOST_CLASSES = 32767,
    MOST_RANKS = 65534, MOST_CELLS = 65536, MOST_COEFFICIENTS = 8, MOST_SHIFT = 62, MOST_DEPTH = 15,
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

static int check_heaps(checked *c, bytes_in group, int is_wide)
{
    uint32_t depth = word(group, G_DEPTH), width = word(group, G_WIDTH), cells = word(c->image, is_wide ? H_WIDE : H_SMALL);
    uint64_t size, tree_bytes;
    bytes_in tree;
    if (depth > MOST_DEPTH || word(group, G_DATA) % 2) return 0;
    size = (uint64_t)1 << depth;
    tree_bytes = size * ((is_wide ? 4u : 2u) + 2 * (uint64_t)width);
    if (tree_bytes > c->n_bytes || !holds(c, word(group, G_DATA), word(group, G_TREES) * tree_bytes, 1)) return 0;
    tree = c->image + word(group, G_DATA);
    for (uint32_t k = word(group, G_TREES); k > 0; k--, tree += tree_bytes)
        for (size_t node = 1; node < size; node++)
            if ((is_wide ? get_u16(tree + 2 * node) : tree[node]) >= cells) return 0;
    return 1;
}

static int check_pointers(checked *c, bytes_in group, int is_wide)
{
    uint32_t width = word(group, G_WIDTH), cells = word(c->image, is_wide ? H_WIDE : H_SMALL), size = is_wide ? 8 : 6;
    bytes_in tree, node;
    if (!holds(c, word(group, G_DATA), (uint64_t)word(group, G_TREES) * POINTER_WORDS, 4)) return 0;
    tree = c->image + word(group, G_DATA);
    for (uint32_t k = word(group, G_TREES); k > 0; k--, tree += 4 * POINTER_WORDS) {
        int32_t n = get_i32(tree + 4 * T_COUNT);
        if (n < 1 || n > CODE_MAX || !holds(c, word(tree, T_NODES), (uint64_t)n * size / 2, 2) ||
            !holds(c, word(tree, T_LEAVES), ((uint64_t)n + 1) * width, 2))
            return 0;
        node = c->image + word(tree, T_NODES);
        for (int32_t j = 0; j < n; j++, node += size) {
            int32_t left = get_i16(node + size - 4), right = get_i16(node + size - 2);
            if ((is_wide ? get_u16(node) : node[0]) >= cells) return 0;
            if (left >= n || right >= n || (left >= 0 && left <= j) || (right >= 0 && right <= j)) return 0;
            if (left < -1 - n || right < -1 - n) return 0;
        }
    }
    return 1;
}

static int check_trees(checked *c, bytes_in scorer)
{
    bytes_in group = scorer + 4 * E_WORDS;
    if (!holds_words(c, scorer, 0, E_WORDS) || !holds(c, word(scorer, E_BASE), word(scorer, E_OUTPUTS), 4) ||
        !holds_words(c, scorer, E_WORDS, (uint64_t)GROUP_WORDS * word(scorer, E_GROUPS)))
        return 0;
    for (uint32_t g = word(scorer, E_GROUPS); g > 0; g--, group += 4 * GROUP_WORDS) {
        uint32_t layout = word(group, G_LAYOUT), width = word(group, G_WIDTH);
        int is_wide = layout == L_WIDE_HEAP || layout == L_WIDE_POINTERS;
        if (layout > L_WIDE_POINTERS || width < 1 || (uint64_t)word(group, G_OUTPUT) + width > word(scorer, E_OUTPUTS)) return 0;
        if ((is_wide && !HAS(HC_WIDE)) || (layout > L_WIDE_HEAP && !HAS(HC_POINTERS))) return 0;
        if (!(layout <= L_WIDE_HEAP ? check_heaps(c, group, is_wide) : check_pointers(c, group, is_wide))) return 0;
    }
    return 1;
}

static int check_polynomial(checked *c, bytes_in scorer)
{
    uint64_t n_columns, n_terms, n_outputs;
    uint32_t weight_bytes;
    if (!holds_words(c, scorer, 0, P_WORDS)) return 0;
    n_columns = word(scorer, P_COLUMNS), n_terms = word(scorer, P_TERMS), n_outputs = word(scorer, P_OUTPUTS);
    weight_bytes = word(scorer, P_WEIGHT_BYTES);
    return (weight_bytes == 1 || weight_bytes == 2) && word(scorer, P_DEGREE) >= 1 && word(scorer, P_DEGREE) <= 3 &&
           all_below(c, word(scorer, P_CELLS), (uint32_t)n_columns, word(c->image, H_WIDE)) &&
           holds(c, word(scorer, P_SUBSTITUTES), n_columns, 2) &&
           holds(c, word(scorer, P_POSITIONS), n_terms * word(scorer, P_DEGREE), 2) &&
           holds(c, word(scorer, P_WEIGHTS), n_terms * n_outputs, weight_bytes) && holds(c, word(scorer, P_BIAS), n_outputs, 8);
}

/* One tree, with one value, of an ensemble that comes before scorer ``number``: its scorer, group and tree. */
static int check_member(checked *c, bytes_in member, uint32_t number)
{
    bytes_in below, group;
    if (word(member, 0) >= number) return 0;
    below = scorer_record(c->image, word(member, 0));
    if (word(below, E_KIND) != K_TREES || word(member, 1) >= word(below, E_GROUPS)) return 0;
    group = below + 4 * (E_WORDS + GROUP_WORDS * (size_t)word(member, 1));
    return word(group, G_WIDTH) == 1 && word(member, 2) < word(group, G_TREES);
}

static int check_leaf(checked *c, bytes_in scorer, uint32_t number)
{
    return holds_words(c, scorer, 0, M_WORDS) && word(scorer, M_OUTPUTS) == 1 && check_member(c, scorer + 4 * M_TREES, number);
}

/* Scorer k is a tree that stacks share; it is checked itself in its turn. */
static int is_leaf(checked *c, uint32_t k)
{
    return k < word(c->image, H_SCORERS) && holds(c, get_u32(at(c->image, H_AT_SCORERS) + 4 * (size_t)k), M_WORDS, 4) &&
           word(scorer_record(c->image, k), M_KIND) == K_LEAF;
}

static int check_stack(checked *c, bytes_in scorer, uint32_t number)
{
    bytes_in member = scorer + 4 * Z_WORDS;
    uint64_t n, n_outputs;
    if (!holds_words(c, scorer, 0, Z_WORDS)) return 0;
    n = word(scorer, Z_MEMBERS), n_outputs = word(scorer, Z_OUTPUTS);
    if (!holds_words(c, scorer, Z_WORDS, 3 * n) || !holds(c, word(scorer, Z_WEIGHTS), n * n_outputs, 2) ||
        !holds(c, word(scorer, Z_BIAS), n_outputs, 8))
        return 0;
    for (; n > 0; n--, member += 12)
        if (!is_leaf(c, word(member, 0)) && !check_member(c, member, number)) return 0;
    return 1;
}

/* The code itself is not looked at: it is of the same export as the image. */
static int check_inlined(checked *c, bytes_in scorer)
{
    if (!holds_words(c, scorer, 0, I_WORDS)) return 0;
    if (!all_below(c, word(scorer, I_SENSORS), word(scorer, I_COUNT), word(c->image, H_SENSORS))) return 0;
    for (uint32_t k = 0; k < word(scorer, I_COUNT); k++)
        if (!word(sensor_record(c->image, get_u16(c->image + word(scorer, I_SENSORS) + 2 * (size_t)k)), N_KEYS)) return 0;
    return 1;
}

static int check_scorers(checked *c)
{
    bytes_in i = c->image;
    for (uint32_t k = 0; k < word(i, H_SCORERS); k++) {
        bytes_in scorer;
        int is_ok;
        if (!holds(c, get_u32(at(i, H_AT_SCORERS) + 4 * (size_t)k), 3, 4)) return 0;
        scorer = scorer_record(i, k);
        if (word(scorer, P_OUTPUTS) < 1) return 0;
        if (!check_part(i, S_SCORES, 8 * ((uint64_t)word(scorer, P_FIRST) + word(scorer, P_OUTPUTS)), 8)) return 0;
        switch (word(scorer, P_KIND)) {
        case K_POLYNOMIAL: is_ok = HAS(HC_POLYNOMIALS) && check_polynomial(c, scorer); break;
        case K_TREES: is_ok = check_trees(c, scorer); break;
        case K_STACK: is_ok = HAS(HC_STACKS) && check_stack(c, scorer, k); break;
        case K_LEAF: is_ok = HAS(HC_STACKS) && check_leaf(c, scorer, k); break;
        case K_INLINE: is_ok = HAS(HC_INLINE) && check_inlined(c, scorer); break;
        default: is_ok = 0;
        }
        if (!is_ok) return 0;
    }
    return 1;
}

static int is_ahead(const checked *c, uint32_t from, uint32_t target)
{
    return from < target && target < word(c->image, H_NODES);
}

static int check_slice(checked *c, bytes_in node)
{
    uint32_t scorer = word(node, B_SCORER), width = word(node, B_WIDTH);
    if (scorer >= word(c->image, H_SCORERS) || width < 1 || word(scorer_record(c->image, scorer), P_KIND) == K_LEAF) return 0;
    return (uint64_t)word(node, B_START) + width <= word(scorer_record(c->image, scorer), P_OUTPUTS);
}

/* A Branch looks at the sensors of its targets, which are checked already because they lie ahead. */
static int may_look(checked *c, uint32_t target)
{
    bytes_in node = node_record(c->image, target);
    uint32_t n = word(node, Q_KIND) == ACQUIRE || word(node, Q_KIND) == FORWARD ? word(node, Q_SENSORS) : 0;
    if (n > c->work) return 0;
    c->work -= n;
    return 1;
}

static int check_branch(checked *c, bytes_in node, uint32_t number)
{
    bytes_in target = node + 4 * B_WORDS, match;
    uint64_t n, width;
    if (!holds_words(c, node, 0, B_WORDS)) return 0;
    n = word(node, B_TARGETS), width = word(node, B_WIDTH);
    if (!check_slice(c, node) || !holds(c, word(node, B_THRESHOLD), 1, 8) || n < 2 || n > MOST_TARGETS) return 0;
    if (!holds_words(c, node, B_WORDS, n)) return 0;
    for (uint32_t k = 0; k < n; k++)
        if (!is_ahead(c, number, word(target, k)) || !may_look(c, word(target, k))) return 0;
    switch (word(node, B_RULE)) {
    case THRESHOLD:
    case MARGIN: return n == 2;
    case ARGMAX: return n == width || (width == 1 && n == 2);
    case TOURNAMENT:
        if (HAS(HC_TOURNAMENTS)) break;
        return 0;
    default: return 0;
    }
    if (width != n - 1 || 2 * n - 1 > word(c->image, H_ENTRANTS) || !holds_words(c, node, B_WORDS + n, 2 * (n - 1))) return 0;
    match = target + 4 * n;
    for (uint32_t m = 0; m + 1 < n; m++)
        if (word(match, 2 * m) >= n + m || word(match, 2 * m + 1) >= n + m) return 0;
    return 1;
}

static int check_select(checked *c, bytes_in node, uint32_t number)
{
    bytes_in candidate = node + 4 * X_WORDS;
    if (!holds_words(c, node, 0, X_WORDS) || !is_ahead(c, number, word(node, X_OTHERWISE))) return 0;
    if (!holds_words(c, node, X_WORDS, (uint64_t)CANDIDATE_WORDS * word(node, X_CANDIDATES))) return 0;
    for (uint32_t k = word(node, X_CANDIDATES); k > 0; k--, candidate += 4 * CANDIDATE_WORDS)
        if (!is_ahead(c, number, word(candidate, Y_TARGET)) || !check_cost(c, word(candidate, Y_COST), word(candidate, Y_COSTS)))
            return 0;
    return 1;
}

static int check_answer(checked *c, bytes_in node)
{
    uint32_t classes = word(c->image, H_CLASSES), width, value;
    if (!holds_words(c, node, 0, A_WORDS) || !check_slice(c, node)) return 0;
    width = word(node, A_WIDTH);
    value = word(node, A_VALUE);
    if (value && ((value & 0xFF) != 1 || value >> 16 || (value >> 8 > MOST_SHIFT && value >> 8 < 256 - MOST_SHIFT))) return 0;
    if (value ? classes != 0 || width != 1 : width != classes && (width != 1 || classes != 2)) return 0;
    return holds(c, word(node, A_AT_MARGINS), word(node, A_MARGINS), 8) && word(node, A_MARGINS) < UINT32_MAX &&
           all_below(c, word(node, A_AT_CONFIDENCES), word(node, A_MARGINS) + 1, 10001);
}

static int check_buying(checked *c, bytes_in node, uint32_t number)
{
    if (!holds_words(c, node, 0, Q_WORDS) || !holds_words(c, node, Q_WORDS, word(node, Q_SENSORS))) return 0;
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++)
        if (word(node, Q_WORDS + k) >= word(c->image, H_SENSORS)) return 0;
    return is_ahead(c, number, word(node, Q_THEN)) && is_ahead(c, number, word(node, Q_OTHERWISE));
}

static int check_nodes(checked *c)
{
    for (uint32_t k = word(c->image, H_NODES); k-- > 0;) { /* targets first */
        bytes_in node;
        int is_ok;
        if (!holds(c, get_u32(at(c->image, H_AT_NODES) + 4 * (size_t)k), 1, 4)) return 0;
        node = node_record(c->image, k);
        switch (word(node, 0)) {
        case ACQUIRE: is_ok = check_buying(c, node, k); break;
        case FORWARD: is_ok = HAS(HC_FORWARDS) && check_buying(c, node, k); break;
        case BRANCH: is_ok = HAS(HC_BRANCHES) && check_branch(c, node, k); break;
        case SELECT: is_ok = HAS(HC_SELECTS) && check_select(c, node, k); break;
        case ANSWER: is_ok = check_answer(c, node); break;
        default: is_ok = 0;
        }
        if (!is_ok) return 0;
    }
    return 1;
}

int hc_check(const void *image, size_t n_bytes)
{
    checked c;
    c.image = image;
    if (n_bytes < 4 * H_WORDS || n_bytes > UINT32_MAX || word(image, H_MAGIC) != MAGIC) return 0;
    if (word(image, H_IMAGE_BYTES) != n_bytes || n_bytes % 8) return 0;
    c.n_bytes = (uint32_t)n_bytes;
    c.work = MOST_WORK;
    return check_header(&c) && check_sensors(&c) && check_scorers(&c) && check_nodes(&c);
}
