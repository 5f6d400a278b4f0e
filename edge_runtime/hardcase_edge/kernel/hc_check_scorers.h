/* SPDX-License-Identifier: Apache-2.0 */
/* The check of scorers: trees and their layouts, polynomials, stacks, code. */
#ifndef HARDCASE_CHECK_SCORERS_H
#define HARDCASE_CHECK_SCORERS_H

#include "hc_check.h"

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

#endif
