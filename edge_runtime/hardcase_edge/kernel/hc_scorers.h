/* SPDX-License-Identifier: Apache-2.0 */
/* Scorers: their scores, each computed once until a sensor that it reads is fed, and margins of scores
 * (docs/SPEC-program-v1.md section 4.1). */
#ifndef HARDCASE_SCORERS_H
#define HARDCASE_SCORERS_H

#include "hc_networks.h"
#include "hc_trees.h"

static void polynomial_scores(hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in cells = image + word(scorer, POLYNOMIAL_CELLS), substitutes = image + word(scorer, POLYNOMIAL_SUBSTITUTES);
    bytes_in position = image + word(scorer, POLYNOMIAL_POSITIONS), weights = image + word(scorer, POLYNOMIAL_WEIGHTS);
    bytes_in bias = image + word(scorer, POLYNOMIAL_BIAS), codes = part(s, S_WIDE);
    uint32_t n_outputs = word(scorer, SCORER_OUTPUTS), n_columns = word(scorer, POLYNOMIAL_COLUMNS);
    uint32_t n_terms = word(scorer, POLYNOMIAL_TERMS), degree = word(scorer, POLYNOMIAL_DEGREE);
    int is_byte = word(scorer, POLYNOMIAL_WEIGHT_BYTES) == 1;
    int32_t constant = get_i32(scorer + 4 * POLYNOMIAL_CONSTANT);
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
            add_score(scores, o, mul64(w, product));
        }
    }
}

/* The value of tree ``tree`` of a group of ensemble ``trees``, for the session's codes. */
static int32_t member_value(const hc_session *s, bytes_in image, uint32_t trees, uint32_t group, uint32_t tree)
{
    bytes_in record = scorer_record(image, trees) + 4 * (TREES_WORDS + GROUP_WORDS * (size_t)group);
    return get_i16(leaf_of(s, image, record, tree));
}

/* The same of a tree that several stacks share: walked once, until a sensor that it reads has been fed. */
static int32_t shared_value(hc_session *s, bytes_in image, bytes_in leaf, uint32_t number)
{
    unsigned char *value = part(s, S_SCORES) + 8 * (size_t)word(leaf, SCORER_FIRST);
    unsigned char *is_scored = part(s, S_IS_SCORED) + number;
    if (!*is_scored) {
        put_i64(value, member_value(s, image, word(leaf, LEAF_TREES), word(leaf, LEAF_GROUP), word(leaf, LEAF_TREE)));
        *is_scored = 1;
    }
    return (int32_t)get_i64(value);
}

static void stack_scores(hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in member = scorer + 4 * STACK_WORDS;
    bytes_in weights = image + word(scorer, STACK_WEIGHTS), bias = image + word(scorer, STACK_BIAS);
    uint32_t n_outputs = word(scorer, SCORER_OUTPUTS), n = word(scorer, STACK_MEMBERS);
    for (uint32_t o = 0; o < n_outputs; o++) put_i64(scores + 8 * (size_t)o, get_i64(bias + 8 * (size_t)o));
    for (uint32_t m = 0; m < n; m++, member += 4 * MEMBER_WORDS) {
        uint32_t number = word(member, MEMBER_SCORER);
        bytes_in below = scorer_record(image, number);
        int32_t z = word(below, SCORER_KIND) == LEAF
                        ? shared_value(s, image, below, number)
                        : member_value(s, image, number, word(member, MEMBER_GROUP), word(member, MEMBER_TREE));
        for (uint32_t o = 0; o < n_outputs; o++) {
            int32_t w = get_i16(weights + 2 * ((size_t)o * n + m));
            add_score(scores, o, (int64_t)w * z);
        }
    }
}

#if HC_PARTS & HC_INLINE
/* The scores of an ensemble that is code, which first learns of each sensor that gave nothing: all its readings are
 * missing. Two of the lowest words are below the key of every f64, too. */
static void inline_scores(hc_session *s, uint32_t number, bytes_in scorer, unsigned char *scores)
{
    bytes_in image = image_of(s), sensor = image + word(scorer, INLINED_SENSORS);
    const unsigned char *flags = part(s, S_SENSORS);
    for (uint32_t n = word(scorer, INLINED_COUNT); n > 0; n--, sensor += 2) {
        bytes_in record = sensor_record(image, get_u16(sensor));
        unsigned char *key = (unsigned char *)s + word(record, SENSOR_KEYS);
        if (flags[get_u16(sensor)] == BOUGHT) continue;
        for (uint32_t k = word(record, SENSOR_READING_BYTES) / 4; k > 0; k--, key += 4) put_i32(key, INT32_MIN);
    }
    hc_inline(number, (unsigned char *)s + sizeof *s, part(s, S_SMALL), part(s, S_WIDE), scores);
}
#endif

/* The scores of a scorer, computed unless they are known; 8 bytes each. */
static const unsigned char *scores_of(hc_session *s, uint32_t scorer)
{
    bytes_in image = image_of(s), record = scorer_record(image, scorer);
    unsigned char *scores = part(s, S_SCORES) + 8 * (size_t)word(record, SCORER_FIRST);
    unsigned char *is_scored = part(s, S_IS_SCORED) + scorer;
    if (!*is_scored) {
        uint32_t kind = word(record, SCORER_KIND);
        if (kind == TREES) tree_scores(s, image, record, scores);
        if (HAS(HC_POLYNOMIALS) && kind == POLYNOMIAL) polynomial_scores(s, image, record, scores);
        if (HAS(HC_STACKS) && kind == STACK) stack_scores(s, image, record, scores);
        if (HAS(HC_NETWORKS) && kind == NETWORK) network_scores(s, record, scores);
#if HC_PARTS & HC_INLINE
        if (kind == INLINED) inline_scores(s, scorer, record, scores);
#endif
        *is_scored = 1;
    }
    return scores;
}

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

#endif
