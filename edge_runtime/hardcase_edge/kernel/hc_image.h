/* SPDX-License-Identifier: Apache-2.0 */
/* The words of an image and of a session's memory, by name (docs/SPEC-image-v1.md), and where they lie. */
#ifndef HARDCASE_IMAGE_H
#define HARDCASE_IMAGE_H

#include "hardcase.h"
#include "hardcase_config.h"
#include "hc_portable.h"

/* Is a part of the kernel compiled? */
#define HAS(part) ((HC_PARTS & (part)) != 0)

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

/* A scorer's outputs, 8 bytes each. */
static int64_t score(const unsigned char *scores, uint32_t k) { return get_i64(scores + 8 * (size_t)k); }

static inline void add_score(unsigned char *scores, size_t k, int64_t value)
{
    put_i64(scores + 8 * k, add64(get_i64(scores + 8 * k), value));
}

#endif
