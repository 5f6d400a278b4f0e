/* The kernel. hardcase.h is its manual, docs/SPEC-image-v1.md defines every word of the image that it reads.
 *
 * Rules here: the image and what follows a session are only ever touched through the loads and stores below (memcpy of
 * the right width, so no aliasing, no unaligned access); sums that a forged image could overflow are unsigned. */
#include "hardcase.h"
#include "hardcase_config.h"

#include <string.h>

#if defined(__GNUC__)
#define ALIGNED(p, n) __builtin_assume_aligned((p), (n))
#else
#define ALIGNED(p, n) (p)
#endif

typedef const unsigned char *bytes_in;

static inline uint16_t get_u16(bytes_in p) { uint16_t v; memcpy(&v, ALIGNED(p, 2), 2); return v; }
static inline int16_t get_i16(bytes_in p) { int16_t v; memcpy(&v, ALIGNED(p, 2), 2); return v; }
static inline uint32_t get_u32(bytes_in p) { uint32_t v; memcpy(&v, ALIGNED(p, 4), 4); return v; }
static inline int32_t get_i32(bytes_in p) { int32_t v; memcpy(&v, ALIGNED(p, 4), 4); return v; }
static inline int64_t get_i64(bytes_in p) { int64_t v; memcpy(&v, ALIGNED(p, 8), 8); return v; }
static inline void put_i16(unsigned char *p, int16_t v) { memcpy(ALIGNED(p, 2), &v, 2); }
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
    S_SCORES, S_REQUEST, S_WIDE, S_TRACE, S_WINNERS, S_SMALL, S_SENSORS, S_IS_SCORED,
    H_WORDS
};
enum feature { FEATURE_BYTES = 4, F_UPLINK = 0, F_COLUMNS = 2, F_FLAGS = 3, F_TYPE = 3, F_NULLABLE = 4, NOT_SENT = 0xFFFF };
enum type { T_I32, T_F32, T_F64 };
enum sensor { SENSOR_WORDS = 8, N_FEATURE = 0, N_FEATURES, N_COLUMN, N_COST, N_COSTS, N_SCORERS, N_SCORERS_COUNT, N_READING_BYTES };
enum column { COLUMN_BYTES = 12, C_RULE = 0, C_IS_WIDE = 1, C_CELL = 2, C_A = 4, C_B = 8 };
enum rule { R_AFFINE, R_RANK, R_DIRECT, R_COPY };
enum scorer { K_POLYNOMIAL, K_TREES, K_STACK, K_INLINE };
enum polynomial { P_KIND, P_OUTPUTS, P_FIRST, P_COLUMNS, P_CELLS, P_SUBSTITUTES, P_TERMS, P_DEGREE, P_POSITIONS, P_WEIGHTS, P_WEIGHT_BYTES, P_BIAS, P_CONSTANT, P_WORDS };
enum trees { E_KIND, E_OUTPUTS, E_FIRST, E_BASE, E_GROUPS, E_WORDS };
enum group { GROUP_WORDS = 6, G_LAYOUT = 0, G_OUTPUT, G_WIDTH, G_TREES, G_DEPTH, G_DATA };
enum layout { L_SMALL_HEAP, L_WIDE_HEAP, L_SMALL_POINTERS, L_WIDE_POINTERS };
enum stack { Z_KIND, Z_OUTPUTS, Z_FIRST, Z_MEMBERS, Z_WEIGHTS, Z_BIAS, Z_WORDS };
enum node { ACQUIRE, BRANCH, SELECT, ANSWER, FORWARD };
enum branch_rule { THRESHOLD, MARGIN, ARGMAX, TOURNAMENT };

enum { B_KIND, B_SCORER, B_START, B_WIDTH, B_RULE, B_THRESHOLD, B_TARGETS, B_WORDS };
enum { Q_KIND, Q_THEN, Q_OTHERWISE, Q_SENSORS, Q_WORDS }; /* acquire; a forward's fallback stands in both places */
enum { X_KIND, X_OTHERWISE, X_CANDIDATES, X_WORDS, CANDIDATE_WORDS = 4, Y_SIZE = 0, Y_TARGET, Y_COST, Y_COSTS };
enum { A_KIND, A_SCORER, A_START, A_WIDTH, A_IS_VALUE, A_MARGINS, A_AT_MARGINS, A_AT_CONFIDENCES, A_WORDS };

enum flags { BOUGHT = 1, FAILED = 2, WANTED = 4 };
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
static inline bytes_in sensor_record(bytes_in image, uint32_t k) { return at(image, H_AT_SENSORS) + 4u * SENSOR_WORDS * k; }
static inline bytes_in node_record(bytes_in image, uint32_t k) { return image + get_u32(at(image, H_AT_NODES) + 4u * k); }
static inline bytes_in scorer_record(bytes_in image, uint32_t k) { return image + get_u32(at(image, H_AT_SCORERS) + 4u * k); }

size_t hc_image_bytes(const void *image) { return word(image, H_IMAGE_BYTES); }
size_t hc_session_bytes(const void *image) { return word(image, H_SESSION_BYTES); }

/* ------------------------------------------------------------------ costs */

static int64_t polynomial(bytes_in coefficients, uint32_t n, int64_t size)
{
    int64_t value = 0;
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

/* What the sensors of an acquire or forward still cost that have none of these flags. */
static int64_t price(const hc_session *s, bytes_in node, unsigned without)
{
    const unsigned char *flags = part_of(s, S_SENSORS);
    int64_t total = 0;
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++) {
        uint32_t sensor = word(node, Q_WORDS + k);
        if (!(flags[sensor] & without)) total = add64(total, cost_of(s, sensor));
    }
    return total;
}

static int any_failed(const hc_session *s, bytes_in node)
{
    const unsigned char *flags = part_of(s, S_SENSORS);
    for (uint32_t k = 0; k < word(node, Q_SENSORS); k++)
        if (flags[word(node, Q_WORDS + k)] & FAILED) return 1;
    return 0;
}

/* ------------------------------------------------------------------ readings: SPEC-program-v1 sections 2 and 3 */

/* A reading: its order-preserving key, and itself as mantissa * 2^exponent. */
typedef struct {
    int64_t key;
    int64_t mantissa;
    int exponent;
} reading;

static int read_i32(bytes_in p, reading *r)
{
    int32_t v;
    memcpy(&v, ALIGNED(p, 4), 4);
    r->key = r->mantissa = v;
    r->exponent = 0;
    return v != INT32_MIN;
}

static int read_f32(bytes_in p, reading *r)
{
    uint32_t bits, rest, exponent;
    memcpy(&bits, ALIGNED(p, 4), 4);
    rest = bits & 0x7FFFFFFFu;
    exponent = rest >> 23;
    r->mantissa = (int64_t)(exponent ? (rest & 0x7FFFFFu) | 0x800000u : rest);
    r->exponent = (int)(exponent ? exponent : 1u) - 150;
    r->key = (int64_t)rest;
    if (bits != rest && rest) {
        r->mantissa = -r->mantissa;
        r->key = -(int64_t)rest - 1;
    }
    return exponent != 0xFF;
}

static int read_f64(bytes_in p, reading *r)
{
    uint64_t bits, rest, exponent;
    memcpy(&bits, ALIGNED(p, 8), 8);
    rest = bits & 0x7FFFFFFFFFFFFFFFu;
    exponent = rest >> 52;
    r->mantissa = (int64_t)(exponent ? (rest & 0xFFFFFFFFFFFFFu) | 0x10000000000000u : rest);
    r->exponent = (int)(exponent ? exponent : 1u) - 1075;
    r->key = (int64_t)rest;
    if (bits != rest && rest) {
        r->mantissa = -r->mantissa;
        r->key = -(int64_t)rest - 1;
    }
    return exponent != 0x7FF;
}

/* floor(reading * 2^frac), held within 32 bits. */
static int64_t fixed(const reading *r, int frac)
{
    int shift = r->exponent + frac;
    int64_t v = r->mantissa;
    if (shift < 0) {
        v = shift_down(v, shift < -62 ? 62u : (unsigned)-shift);
    } else if (v != 0) {
        if (shift > 31) shift = 31;
        if (v >= ((int64_t)1 << 32)) return INT32_MAX;
        if (v <= -((int64_t)1 << 32)) return INT32_MIN;
        v = v * ((int64_t)1 << shift);
    }
    return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v;
}

static int64_t affine(const reading *r, bytes_in rule)
{
    int64_t low = get_i64(rule + 32), high = get_i64(rule + 40);
    int64_t v = fixed(r, (int)get_i64(rule)) * get_i64(rule + 8) + get_i64(rule + 16);
    v = shift_down(v, (unsigned)get_i64(rule + 24));
    return v < low ? low : v > high ? high : v;
}

/* How many of the n keys, rising, lie below this one. */
static uint32_t rank32(bytes_in keys, uint32_t n, int32_t key)
{
    uint32_t low = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (get_i32(keys + 4 * (size_t)(low + half)) < key) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

static uint32_t rank64(bytes_in keys, uint32_t n, int64_t key)
{
    uint32_t low = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (get_i64(keys + 8 * (size_t)(low + half)) < key) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* The code of a reading through a column; small cells count from 1. */
static int32_t code_of(bytes_in image, bytes_in column, unsigned type, const reading *r)
{
    uint32_t a = get_u32(column + C_A), b = get_u32(column + C_B);
    int is_wide = column[C_IS_WIDE];
    int64_t rise, floor = is_wide ? -CODE_MAX : 1;
    switch (column[C_RULE]) {
    case R_AFFINE: {
        int64_t low = get_i64(image + a + 32);
        return (int32_t)(affine(r, image + a) - (is_wide ? 0 : low - 1));
    }
    case R_RANK:
        rise = type == T_F64 ? rank64(image + a, b, r->key) : rank32(image + a, b, (int32_t)r->key);
        return (int32_t)(floor + rise);
    default:
        rise = r->key - (int32_t)a;
        return (int32_t)(floor + (rise < 0 ? 0 : rise > (int64_t)b ? (int64_t)b : rise));
    }
}

static void put_cell(hc_session *s, bytes_in column, int32_t code)
{
    uint32_t cell = get_u16(column + C_CELL);
    if (column[C_IS_WIDE]) put_i16(part(s, S_WIDE) + 2 * (size_t)cell, (int16_t)code);
    else part(s, S_SMALL)[cell] = (unsigned char)code;
}

/* What a cell holds while nothing is known. */
static void clear_cell(hc_session *s, bytes_in column)
{
    uint32_t cell = get_u16(column + C_CELL);
    bytes_in image = image_of(s);
    if (column[C_IS_WIDE]) put_cell(s, column, cell < word(image, H_WIDE_LEFT) ? MISSING : CODE_MAX);
    else put_cell(s, column, cell < word(image, H_SMALL_LEFT) ? 0 : SMALL_MISSING);
}

static const unsigned char TYPE_BYTES[3] = {4, 4, 8};

/* Write one reading into the request; NULL: missing. Minus zero becomes zero. */
static void put_request(hc_session *s, bytes_in feature, bytes_in value)
{
    static const unsigned char MISSING_MARK[3][8] = {
        {0, 0, 0, 0x80}, {0, 0, 0xC0, 0x7F}, {0, 0, 0, 0, 0, 0, 0xF8, 0x7F}};
    static const unsigned char MINUS_ZERO[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    unsigned type = feature[F_FLAGS] & F_TYPE;
    size_t n = TYPE_BYTES[type];
    unsigned char *out;
    if (get_u16(feature + F_UPLINK) == NOT_SENT) return;
    out = part(s, S_REQUEST) + get_u16(feature + F_UPLINK);
    if (value == NULL) memcpy(out, MISSING_MARK[type], n);
    else if (type != T_I32 && memcmp(value, MINUS_ZERO + 8 - n, n) == 0) memset(out, 0, n);
    else memcpy(out, value, n);
}

/* Codes of a sensor's readings; 0, and nothing kept, if one is missing that may not be. */
static int take(hc_session *s, uint32_t sensor, bytes_in readings)
{
    bytes_in image = image_of(s), record = sensor_record(image, sensor);
    bytes_in feature = at(image, H_AT_FEATURES) + (size_t)FEATURE_BYTES * word(record, N_FEATURE);
    bytes_in first = at(image, H_AT_COLUMNS) + (size_t)COLUMN_BYTES * word(record, N_COLUMN), column = first;
    bytes_in p = readings;
    size_t offset = 0;
    for (uint32_t k = word(record, N_FEATURES); k > 0; k--, feature += FEATURE_BYTES) {
        unsigned type = feature[F_FLAGS] & F_TYPE;
        size_t n = TYPE_BYTES[type];
        reading r;
        int32_t code = 0;
        int is_there;
        offset = (offset + n - 1) & ~(n - 1);
        p = readings + offset;
        is_there = type == T_I32 ? read_i32(p, &r) : type == T_F32 ? read_f32(p, &r) : read_f64(p, &r);
        offset += n;
        put_request(s, feature, is_there ? p : NULL);
        if (!is_there) {
            if (!(feature[F_FLAGS] & F_NULLABLE)) {
                for (; first < column; first += COLUMN_BYTES) clear_cell(s, first);
                return 0;
            }
            column += (size_t)COLUMN_BYTES * feature[F_COLUMNS];
            continue;
        }
        for (unsigned c = feature[F_COLUMNS]; c > 0; c--, column += COLUMN_BYTES) {
            if (column[C_RULE] != R_COPY) code = code_of(image, column, type, &r);
            put_cell(s, column, code);
        }
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
        for (uint32_t o = 0; o < n_outputs; o++) {
            size_t k = (size_t)o * n_terms + t;
            int32_t w = is_byte ? (int32_t)weights[k] - 2 * (weights[k] & 0x80) : get_i16(weights + 2 * k);
            put_i64(scores + 8 * (size_t)o, add64(get_i64(scores + 8 * (size_t)o), mul64(w, product)));
        }
    }
}

/* The leaf that the session's codes reach in tree k of a group: its first value. */
static bytes_in leaf_of(const hc_session *s, bytes_in image, bytes_in group, uint32_t k)
{
    const unsigned char *small = part_of(s, S_SMALL), *wide = part_of(s, S_WIDE);
    bytes_in data = image + word(group, G_DATA);
    uint32_t width = word(group, G_WIDTH), depth = word(group, G_DEPTH), layout = word(group, G_LAYOUT);
    if (layout == L_SMALL_HEAP) {
        size_t n = (size_t)1 << depth, node = 1;
        data += k * (n * 2 + n * 2 * width);
        for (uint32_t d = 0; d < depth; d++) node = 2 * node + (small[data[node]] > data[n + node]);
        return data + 2 * n + 2 * width * (node - n);
    }
    if (layout == L_WIDE_HEAP) {
        size_t n = (size_t)1 << depth, node = 1;
        data += k * (n * 4 + n * 2 * width);
        for (uint32_t d = 0; d < depth; d++)
            node = 2 * node + (get_i16(wide + 2 * (size_t)get_u16(data + 2 * node)) > get_i16(data + 2 * (n + node)));
        return data + 4 * n + 2 * width * (node - n);
    } else {
        bytes_in nodes = image + get_u32(data + 8 * (size_t)k), leaves = image + get_u32(data + 8 * (size_t)k + 4);
        int32_t node = 0;
        while (node >= 0) {
            if (layout == L_SMALL_POINTERS) {
                bytes_in p = nodes + 6 * (size_t)node;
                node = get_i16(p + 2 + 2 * (small[p[0]] > p[1]));
            } else {
                bytes_in p = nodes + 8 * (size_t)node;
                node = get_i16(p + 4 + 2 * (get_i16(wide + 2 * (size_t)get_u16(p)) > get_i16(p + 2)));
            }
        }
        return leaves + 2 * (size_t)width * (size_t)(-1 - node);
    }
}

static void tree_scores(const hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in base = image + word(scorer, E_BASE), group = scorer + 4 * E_WORDS;
    for (uint32_t o = 0; o < word(scorer, E_OUTPUTS); o++) put_i64(scores + 8 * (size_t)o, get_i32(base + 4 * (size_t)o));
    for (uint32_t g = word(scorer, E_GROUPS); g > 0; g--, group += 4 * GROUP_WORDS) {
        unsigned char *out = scores + 8 * (size_t)word(group, G_OUTPUT);
        uint32_t width = word(group, G_WIDTH);
        for (uint32_t k = 0; k < word(group, G_TREES); k++) {
            bytes_in leaf = leaf_of(s, image, group, k);
            for (uint32_t j = 0; j < width; j++)
                put_i64(out + 8 * (size_t)j, add64(get_i64(out + 8 * (size_t)j), get_i16(leaf + 2 * (size_t)j)));
        }
    }
}

static void stack_scores(const hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in member = scorer + 4 * Z_WORDS, weights = image + word(scorer, Z_WEIGHTS), bias = image + word(scorer, Z_BIAS);
    uint32_t n_outputs = word(scorer, Z_OUTPUTS), n = word(scorer, Z_MEMBERS);
    for (uint32_t o = 0; o < n_outputs; o++) put_i64(scores + 8 * (size_t)o, get_i64(bias + 8 * (size_t)o));
    for (uint32_t m = 0; m < n; m++, member += 12) {
        bytes_in group = scorer_record(image, word(member, 0)) + 4 * (E_WORDS + GROUP_WORDS * (size_t)word(member, 1));
        int32_t z = get_i16(leaf_of(s, image, group, word(member, 2)));
        for (uint32_t o = 0; o < n_outputs; o++) {
            int32_t w = get_i16(weights + 2 * ((size_t)o * n + m));
            put_i64(scores + 8 * (size_t)o, add64(get_i64(scores + 8 * (size_t)o), (int64_t)w * z));
        }
    }
}

/* The scores of a scorer, computed unless they are known; 8 bytes each. */
static const unsigned char *scores_of(hc_session *s, uint32_t scorer)
{
    bytes_in image = image_of(s), record = scorer_record(image, scorer);
    unsigned char *scores = part(s, S_SCORES) + 8 * (size_t)word(record, P_FIRST);
    unsigned char *is_scored = part(s, S_IS_SCORED) + scorer;
    if (!*is_scored) {
        uint32_t kind = word(record, P_KIND);
        if (kind == K_TREES) tree_scores(s, image, record, scores);
        if (HC_POLYNOMIALS && kind == K_POLYNOMIAL) polynomial_scores(s, image, record, scores);
        if (HC_STACKS && kind == K_STACK) stack_scores(s, image, record, scores);
#if HC_INLINE
        if (kind == K_INLINE) hc_inline(scorer, part(s, S_SMALL), part(s, S_WIDE), scores);
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

static int can_have(const hc_session *s, uint32_t target)
{
    bytes_in node = node_record(image_of(s), target);
    if (word(node, Q_KIND) == ACQUIRE) return !any_failed(s, node) && fits(s, price(s, node, BOUGHT));
    if (word(node, Q_KIND) == FORWARD) return fits(s, add64(price(s, node, BOUGHT | FAILED), request_cost(s)));
    return 1;
}

static uint32_t tournament(hc_session *s, bytes_in node, const unsigned char *scores)
{
    uint32_t n = word(node, B_TARGETS), none = 1;
    bytes_in target = node + 4 * B_WORDS, match = target + 4 * (size_t)n;
    unsigned char *winners = part(s, S_WINNERS); /* entrants are targets, none of them is UINT16_MAX */
    for (uint32_t k = 0; k < n; k++) {
        int16_t entrant = can_have(s, word(target, k)) ? (int16_t)k : -1;
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

static uint32_t branch(hc_session *s, bytes_in node)
{
    const unsigned char *scores = scores_of(s, word(node, B_SCORER)) + 8 * (size_t)word(node, B_START);
    uint32_t n = word(node, B_TARGETS), width = word(node, B_WIDTH), rule = word(node, B_RULE), best;
    bytes_in target = node + 4 * B_WORDS;
    int64_t margin;
    if (rule == TOURNAMENT) {
        best = tournament(s, node, scores);
        return word(target, best < n ? best : 0);
    }
    margin = margin_of(scores, width, &best);
    if (rule != ARGMAX) {
        int64_t threshold = get_i64(image_of(s) + word(node, B_THRESHOLD));
        best = rule == THRESHOLD ? score(scores, 0) > threshold : margin >= threshold;
    }
    if (!can_have(s, word(target, best))) {
        uint32_t next = best;
        for (uint32_t k = 0; k < n; k++) {
            if (k == best || !can_have(s, word(target, k))) continue;
            if (next == best || (width > 1 && rule == ARGMAX && score(scores, k) > score(scores, next))) next = k;
        }
        best = next;
    }
    return word(target, best);
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

static void answer(hc_session *s, bytes_in node)
{
    const unsigned char *scores = scores_of(s, word(node, A_SCORER)) + 8 * (size_t)word(node, A_START);
    bytes_in image = image_of(s), margins = image + word(node, A_AT_MARGINS);
    uint32_t best, k = 0;
    int64_t margin = margin_of(scores, word(node, A_WIDTH), &best), result = best;
    if (word(node, A_IS_VALUE)) margin = result = score(scores, 0);
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
    if (any_failed(s, node) || !fits(s, price(s, node, BOUGHT))) s->at = word(node, Q_OTHERWISE);
    else if (!want(s, node, BOUGHT)) s->at = word(node, Q_THEN);
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
    } else if (!fits(s, add64(price(s, node, BOUGHT | FAILED), request_cost(s)))) {
        s->at = word(node, Q_THEN);
    } else if (!want(s, node, BOUGHT | FAILED)) {
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
    memset(s, 0, sizeof *s);
    s->image.bytes = in;
    s->budget = budget;
    s->item_size = item_size;
    s->has_cloud = cloud != 0;
    s->phase = NEW;
    memset(part(s, S_SENSORS), 0, word(in, H_SENSORS));
    memset(part(s, S_IS_SCORED), 0, word(in, H_SCORERS));
    memset(part(s, S_SMALL), 0, small_left);
    memset(part(s, S_SMALL) + small_left, SMALL_MISSING, small - small_left);
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
        switch (word(node, 0)) {
        case ACQUIRE: acquire(s, node); break;
        case BRANCH: s->at = branch(s, node); break;
        case SELECT: s->at = select_model(s, node); break;
        case ANSWER: answer(s, node); break;
        default: forward(s, node);
        }
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
    if (s->phase != WAIT_SENSORS) return HC_ERROR_ORDER;
    if (sensor < 0 || (uint32_t)sensor >= word(image, H_SENSORS) || !(*flags & WANTED)) return HC_ERROR_ORDER;
    if (sensor == hc_wanted(s)) s->cursor++;
    record = sensor_record(image, (uint32_t)sensor);
    declared = cost_of(s, (uint32_t)sensor);
    s->spent = add64(s->spent, declared);
    if (cost >= 0 && cost < declared) s->saved = add64(s->saved, declared - cost);
    *flags = BOUGHT;
    if (readings == NULL || !take(s, (uint32_t)sensor, readings)) *flags |= FAILED;
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

int hc_was_bought(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return part_of(s, S_SENSORS)[sensor] & BOUGHT;
}

int hc_visited(const hc_session *s, int step)
{
    if (step < 0 || step >= s->steps) return -1;
    return get_u16(part_of(s, S_TRACE) + 2 * (size_t)step);
}

int64_t hc_score(hc_session *s, int scorer, int output) { return score(scores_of(s, (uint32_t)scorer), (uint32_t)output); }
