/* SPDX-License-Identifier: Apache-2.0 */
/* Tree ensembles: complete trees and trees with pointers, many of them walked side by side. */
#ifndef HARDCASE_TREES_H
#define HARDCASE_TREES_H

#include "hc_image.h"

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
#define ARRIVED(k) bytes_in leaf##k = tree + k * stride + inner + 2 * width * (at##k - size);
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
            EIGHT(ARRIVED)
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
            ARRIVED(0)
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

#define ENTER(k) int32_t at##k = 0; bytes_in nodes##k = image + word(tree + 4 * TREE_WORDS * k, TREE_NODES);
#define FOLLOW(k) at##k = follow(is_wide, cells, nodes##k, at##k);
#define REACHED(k) & at##k
#define POINTED(k)                                                                      \
    bytes_in leaf##k = image + word(tree + 4 * TREE_WORDS * k, TREE_LEAVES) + 2 * width * (size_t)(-1 - at##k);

/* As walk, for trees with pointers. */
INLINE void wander(int is_wide, size_t width, bytes_in cells, bytes_in image, bytes_in tree, uint32_t n,
                   unsigned char *scores)
{
#if HC_LANES == 8
    for (; n >= 4; n -= 4, tree += 4 * 4 * TREE_WORDS) {
        FOUR(ENTER)
        do { FOUR(FOLLOW) } while ((-1 FOUR(REACHED)) >= 0);
        {
            FOUR(POINTED)
            for (size_t j = 0; j < width; j++) add_score(scores, j, FOUR(VALUE));
        }
    }
#endif
    for (; n > 0; n--, tree += 4 * TREE_WORDS) {
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
    uint32_t width = word(group, GROUP_WIDTH), depth = word(group, GROUP_DEPTH), layout = word(group, GROUP_LAYOUT);
    int is_wide = layout == WIDE_HEAP || layout == WIDE_POINTERS;
    bytes_in data = image + word(group, GROUP_DATA), cells = part_of(s, is_wide ? S_WIDE : S_SMALL);
    if (layout == SMALL_HEAP || layout == WIDE_HEAP) {
        size_t size = (size_t)1 << depth, inner = (is_wide ? 4 : 2) * size, node = 1;
        data += k * (inner + 2 * width * size);
        for (uint32_t d = 0; d < depth; d++) node = step(is_wide, cells, data, data + inner / 2, node);
        return data + inner + 2 * width * (node - size);
    } else {
        bytes_in tree = data + 4 * (size_t)TREE_WORDS * k;
        int32_t node = 0;
        do node = follow(is_wide, cells, image + word(tree, TREE_NODES), node); while (node >= 0);
        return image + word(tree, TREE_LEAVES) + 2 * (size_t)width * (size_t)(-1 - node);
    }
}

static void add_group(const hc_session *s, bytes_in image, bytes_in group, unsigned char *scores)
{
    uint32_t width = word(group, GROUP_WIDTH), depth = word(group, GROUP_DEPTH), n = word(group, GROUP_TREES);
    bytes_in data = image + word(group, GROUP_DATA);
    uint32_t layout = word(group, GROUP_LAYOUT);
    if (layout == SMALL_HEAP)
        walk_small(depth, width, part_of(s, S_SMALL), data, n, scores);
    else if (HAS(HC_WIDE) && layout == WIDE_HEAP)
        walk_wide(depth, width, part_of(s, S_WIDE), data, n, scores);
    else if (HAS(HC_POINTERS) && layout == SMALL_POINTERS)
        wander(0, width, part_of(s, S_SMALL), image, data, n, scores);
    else if (HAS(HC_POINTERS) && HAS(HC_WIDE))
        wander(1, width, part_of(s, S_WIDE), image, data, n, scores);
}

static void tree_scores(const hc_session *s, bytes_in image, bytes_in scorer, unsigned char *scores)
{
    bytes_in base = image + word(scorer, TREES_BASE), group = scorer + 4 * TREES_WORDS;
    for (uint32_t o = 0; o < word(scorer, SCORER_OUTPUTS); o++)
        put_i64(scores + 8 * (size_t)o, get_i32(base + 4 * (size_t)o));
    for (uint32_t g = word(scorer, TREES_GROUPS); g > 0; g--, group += 4 * GROUP_WORDS)
        add_group(s, image, group, scores + 8 * (size_t)word(group, GROUP_OUTPUT));
}

#endif
