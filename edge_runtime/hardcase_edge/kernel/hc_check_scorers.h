/* SPDX-License-Identifier: Apache-2.0 */
/* The check of scorers: trees and their layouts, polynomials, stacks, networks, code. */
#ifndef HARDCASE_CHECK_SCORERS_H
#define HARDCASE_CHECK_SCORERS_H

#include "hc_check.h"

static int check_heaps(checked *c, bytes_in group, int is_wide)
{
    uint32_t depth = word(group, GROUP_DEPTH), width = word(group, GROUP_WIDTH);
    uint32_t cells = word(c->image, is_wide ? H_WIDE : H_SMALL);
    uint64_t size, tree_bytes;
    bytes_in tree;
    if (depth > MOST_DEPTH || word(group, GROUP_DATA) % 2) return 0;
    size = (uint64_t)1 << depth;
    tree_bytes = size * ((is_wide ? 4u : 2u) + 2 * (uint64_t)width);
    if (tree_bytes > c->n_bytes || !holds(c, word(group, GROUP_DATA), word(group, GROUP_TREES) * tree_bytes, 1)) return 0;
    tree = c->image + word(group, GROUP_DATA);
    for (uint32_t k = word(group, GROUP_TREES); k > 0; k--, tree += tree_bytes)
        for (size_t node = 1; node < size; node++)
            if ((is_wide ? get_u16(tree + 2 * node) : tree[node]) >= cells) return 0;
    return 1;
}

static int check_pointers(checked *c, bytes_in group, int is_wide)
{
    uint32_t width = word(group, GROUP_WIDTH), cells = word(c->image, is_wide ? H_WIDE : H_SMALL), size = is_wide ? 8 : 6;
    bytes_in tree, node;
    if (!holds(c, word(group, GROUP_DATA), (uint64_t)word(group, GROUP_TREES) * TREE_WORDS, 4)) return 0;
    tree = c->image + word(group, GROUP_DATA);
    for (uint32_t k = word(group, GROUP_TREES); k > 0; k--, tree += 4 * TREE_WORDS) {
        int32_t n = get_i32(tree + 4 * TREE_COUNT);
        if (n < 1 || n > CODE_MAX || !holds(c, word(tree, TREE_NODES), (uint64_t)n * size / 2, 2) ||
            !holds(c, word(tree, TREE_LEAVES), ((uint64_t)n + 1) * width, 2))
            return 0;
        node = c->image + word(tree, TREE_NODES);
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
    bytes_in group = scorer + 4 * TREES_WORDS;
    if (!holds_words(c, scorer, 0, TREES_WORDS) ||
        !holds(c, word(scorer, TREES_BASE), word(scorer, SCORER_OUTPUTS), 4) ||
        !holds_words(c, scorer, TREES_WORDS, (uint64_t)GROUP_WORDS * word(scorer, TREES_GROUPS)))
        return 0;
    for (uint32_t g = word(scorer, TREES_GROUPS); g > 0; g--, group += 4 * GROUP_WORDS) {
        uint32_t layout = word(group, GROUP_LAYOUT), width = word(group, GROUP_WIDTH);
        int is_wide = layout == WIDE_HEAP || layout == WIDE_POINTERS;
        if (layout > WIDE_POINTERS || width < 1) return 0;
        if ((uint64_t)word(group, GROUP_OUTPUT) + width > word(scorer, SCORER_OUTPUTS)) return 0;
        if ((is_wide && !HAS(HC_WIDE)) || (layout > WIDE_HEAP && !HAS(HC_POINTERS))) return 0;
        if (!(layout <= WIDE_HEAP ? check_heaps(c, group, is_wide) : check_pointers(c, group, is_wide))) return 0;
    }
    return 1;
}

static int check_polynomial(checked *c, bytes_in scorer)
{
    uint64_t n_columns, n_terms, n_outputs;
    uint32_t weight_bytes, degree;
    if (!holds_words(c, scorer, 0, POLYNOMIAL_WORDS)) return 0;
    n_columns = word(scorer, POLYNOMIAL_COLUMNS), n_terms = word(scorer, POLYNOMIAL_TERMS);
    n_outputs = word(scorer, SCORER_OUTPUTS), degree = word(scorer, POLYNOMIAL_DEGREE);
    weight_bytes = word(scorer, POLYNOMIAL_WEIGHT_BYTES);
    return (weight_bytes == 1 || weight_bytes == 2) && degree >= 1 && degree <= 3 &&
           all_below(c, word(scorer, POLYNOMIAL_CELLS), (uint32_t)n_columns, word(c->image, H_WIDE)) &&
           holds(c, word(scorer, POLYNOMIAL_SUBSTITUTES), n_columns, 2) &&
           holds(c, word(scorer, POLYNOMIAL_POSITIONS), n_terms * degree, 2) &&
           holds(c, word(scorer, POLYNOMIAL_WEIGHTS), n_terms * n_outputs, weight_bytes) &&
           holds(c, word(scorer, POLYNOMIAL_BIAS), n_outputs, 8);
}

/* One tree, with one value, of an ensemble that comes before scorer ``number``: its scorer, group and tree. */
static int check_member(checked *c, bytes_in member, uint32_t number)
{
    bytes_in below, group;
    if (word(member, MEMBER_SCORER) >= number) return 0;
    below = scorer_record(c->image, word(member, MEMBER_SCORER));
    if (word(below, SCORER_KIND) != TREES || word(member, MEMBER_GROUP) >= word(below, TREES_GROUPS)) return 0;
    group = below + 4 * (TREES_WORDS + GROUP_WORDS * (size_t)word(member, MEMBER_GROUP));
    return word(group, GROUP_WIDTH) == 1 && word(member, MEMBER_TREE) < word(group, GROUP_TREES);
}

static int check_leaf(checked *c, bytes_in scorer, uint32_t number)
{
    return holds_words(c, scorer, 0, LEAF_WORDS) && word(scorer, SCORER_OUTPUTS) == 1 &&
           check_member(c, scorer + 4 * LEAF_TREES, number);
}

/* Scorer k is a tree that stacks share; it is checked itself in its turn. */
static int is_leaf(checked *c, uint32_t k)
{
    return k < word(c->image, H_SCORERS) && holds(c, get_u32(at(c->image, H_AT_SCORERS) + 4 * (size_t)k), LEAF_WORDS, 4) &&
           word(scorer_record(c->image, k), SCORER_KIND) == LEAF;
}

static int check_stack(checked *c, bytes_in scorer, uint32_t number)
{
    bytes_in member = scorer + 4 * STACK_WORDS;
    uint64_t n, n_outputs;
    if (!holds_words(c, scorer, 0, STACK_WORDS)) return 0;
    n = word(scorer, STACK_MEMBERS), n_outputs = word(scorer, SCORER_OUTPUTS);
    if (!holds_words(c, scorer, STACK_WORDS, MEMBER_WORDS * n) || !holds(c, word(scorer, STACK_WEIGHTS), n * n_outputs, 2) ||
        !holds(c, word(scorer, STACK_BIAS), n_outputs, 8))
        return 0;
    for (; n > 0; n--, member += 4 * MEMBER_WORDS)
        if (!is_leaf(c, word(member, MEMBER_SCORER)) && !check_member(c, member, number)) return 0;
    return 1;
}

static int is_side(uint32_t n) { return n >= 1 && n <= MOST_DIMENSION; }
static int is_byte(int32_t v) { return v >= -128 && v <= 127; }

/* Does every window along one side begin in the input? */
static int check_windows(uint32_t size, uint32_t n, uint32_t window, uint32_t stride, uint32_t padding)
{
    return is_side(n) && is_side(window) && is_side(stride) && padding < window &&
           (uint64_t)(n - 1) * stride < (uint64_t)size + padding;
}

/* A layer whose input has these rows, columns and channels; *multiplications: those of the layers before, then of it, too. */
static int check_layer(checked *c, bytes_in network, bytes_in layer, const uint32_t *in, int is_last, uint64_t *multiplications)
{
    uint32_t kind = word(layer, LAYER_KIND), n = word(layer, LAYER_CHANNELS);
    uint32_t height = word(layer, LAYER_HEIGHT), width = word(layer, LAYER_WIDTH);
    uint32_t window_height = word(layer, LAYER_WINDOW_HEIGHT), window_width = word(layer, LAYER_WINDOW_WIDTH);
    uint64_t places = (uint64_t)height * width, size = (uint64_t)window_height * window_width;
    if (kind > LARGEST || !is_side(n) || !is_byte(get_i32(layer + 4 * LAYER_ZERO_POINT))) return 0;
    if (!check_windows(in[0], height, window_height, word(layer, LAYER_DOWN), word(layer, LAYER_ABOVE))) return 0;
    if (!check_windows(in[1], width, window_width, word(layer, LAYER_RIGHT), word(layer, LAYER_LEFT))) return 0;
    if (kind == CONV) size *= in[2];
    else if (n != in[2]) return 0;
    if (places * n > MOST_MULTIPLICATIONS || size > MOST_MULTIPLICATIONS) return 0;
    *multiplications += places * n * size;
    if (*multiplications > MOST_MULTIPLICATIONS) return 0;
    if ((uint64_t)in[0] * in[1] * in[2] + (is_last ? 0 : places * n) > word(network, NETWORK_BYTES)) return 0;
    if (kind == CONV && 2 * size * (places < NETWORK_WINDOWS ? places : NETWORK_WINDOWS) > word(network, NETWORK_WINDOW_BYTES))
        return 0;
    if (kind > DEPTHWISE) return 1;
    if (!holds(c, word(layer, LAYER_WEIGHTS), n * size, 1) || !holds(c, word(layer, LAYER_BIAS), n, 4) ||
        !holds(c, word(layer, LAYER_MULTIPLIERS), n, 4) || !holds(c, word(layer, LAYER_SHIFTS), n, 1))
        return 0;
    for (uint32_t o = 0; o < n; o++) {
        unsigned shift = c->image[word(layer, LAYER_SHIFTS) + (size_t)o];
        if (shift < 1 || shift > MOST_SHIFT) return 0;
    }
    return 1;
}

static int check_network(checked *c, bytes_in scorer)
{
    bytes_in layer = scorer + 4 * NETWORK_WORDS;
    uint32_t n_columns, n_layers, in[3];
    uint64_t end, multiplications = 0;
    if (!holds_words(c, scorer, 0, NETWORK_WORDS)) return 0;
    n_columns = word(scorer, NETWORK_COLUMNS), n_layers = word(scorer, NETWORK_LAYERS);
    in[0] = word(scorer, NETWORK_HEIGHT), in[1] = word(scorer, NETWORK_WIDTH), in[2] = word(scorer, NETWORK_CHANNELS);
    end = (uint64_t)word(scorer, NETWORK_LENT) + word(scorer, NETWORK_WINDOW_BYTES) + word(scorer, NETWORK_BYTES);
    if (word(scorer, NETWORK_LENT) % 8 || word(scorer, NETWORK_LENT) < sizeof(hc_session) || end > word(c->image, S_SCORES))
        return 0;
    if (!is_side(in[0]) || !is_side(in[1]) || !is_side(in[2]) || (uint64_t)in[0] * in[1] * in[2] != n_columns ||
        !is_byte(get_i32(scorer + 4 * NETWORK_ZERO_POINT)) || word(scorer, NETWORK_BYTES) > MOST_LENT || n_layers < 1 ||
        !all_below(c, word(scorer, NETWORK_CELLS), n_columns, word(c->image, H_WIDE)) ||
        !holds(c, word(scorer, NETWORK_SUBSTITUTES), n_columns, 2) ||
        !holds_words(c, scorer, NETWORK_WORDS, (uint64_t)LAYER_WORDS * n_layers))
        return 0;
    for (; n_layers > 0; n_layers--, layer += 4 * LAYER_WORDS) {
        if (!check_layer(c, scorer, layer, in, n_layers == 1, &multiplications)) return 0;
        in[0] = word(layer, LAYER_HEIGHT), in[1] = word(layer, LAYER_WIDTH), in[2] = word(layer, LAYER_CHANNELS);
    }
    return (uint64_t)in[0] * in[1] * in[2] == word(scorer, SCORER_OUTPUTS);
}

/* The code itself is not looked at: it is of the same export as the image. */
static int check_inlined(checked *c, bytes_in scorer)
{
    if (!holds_words(c, scorer, 0, INLINED_WORDS)) return 0;
    if (!all_below(c, word(scorer, INLINED_SENSORS), word(scorer, INLINED_COUNT), word(c->image, H_SENSORS))) return 0;
    for (uint32_t k = 0; k < word(scorer, INLINED_COUNT); k++) {
        uint32_t sensor = get_u16(c->image + word(scorer, INLINED_SENSORS) + 2 * (size_t)k);
        if (!word(sensor_record(c->image, sensor), SENSOR_KEYS)) return 0;
    }
    return 1;
}

static int check_scorers(checked *c)
{
    bytes_in i = c->image;
    for (uint32_t k = 0; k < word(i, H_SCORERS); k++) {
        bytes_in scorer;
        uint64_t n_scores;
        int is_ok;
        if (!holds(c, get_u32(at(i, H_AT_SCORERS) + 4 * (size_t)k), SCORER_WORDS, 4)) return 0;
        scorer = scorer_record(i, k);
        if (word(scorer, SCORER_OUTPUTS) < 1) return 0;
        n_scores = (uint64_t)word(scorer, SCORER_FIRST) + word(scorer, SCORER_OUTPUTS);
        if (!check_part(i, S_SCORES, 8 * n_scores, 8)) return 0;
        switch (word(scorer, SCORER_KIND)) {
        case POLYNOMIAL: is_ok = HAS(HC_POLYNOMIALS) && check_polynomial(c, scorer); break;
        case TREES: is_ok = check_trees(c, scorer); break;
        case STACK: is_ok = HAS(HC_STACKS) && check_stack(c, scorer, k); break;
        case LEAF: is_ok = HAS(HC_STACKS) && check_leaf(c, scorer, k); break;
        case NETWORK: is_ok = HAS(HC_NETWORKS) && check_network(c, scorer); break;
        case INLINED: is_ok = HAS(HC_INLINE) && check_inlined(c, scorer); break;
        default: is_ok = 0;
        }
        if (!is_ok) return 0;
    }
    return 1;
}

#endif
