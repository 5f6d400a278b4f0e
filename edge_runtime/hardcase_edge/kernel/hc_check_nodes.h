/* SPDX-License-Identifier: Apache-2.0 */
/* The check of nodes: their targets lie ahead, so that every walk ends. */
#ifndef HARDCASE_CHECK_NODES_H
#define HARDCASE_CHECK_NODES_H

#include "hc_check.h"

static int is_ahead(const checked *c, uint32_t from, uint32_t target)
{
    return from < target && target < word(c->image, H_NODES);
}

static int check_slice(checked *c, bytes_in node)
{
    uint32_t scorer = word(node, BRANCH_SCORER), width = word(node, BRANCH_WIDTH);
    bytes_in record;
    if (scorer >= word(c->image, H_SCORERS) || width < 1) return 0;
    record = scorer_record(c->image, scorer);
    return word(record, SCORER_KIND) != LEAF && (uint64_t)word(node, BRANCH_START) + width <= word(record, SCORER_OUTPUTS);
}

/* A Branch looks at the sensors of its targets, which are checked already because they lie ahead. */
static int may_look(checked *c, uint32_t target)
{
    bytes_in node = node_record(c->image, target);
    uint32_t n = word(node, NODE_KIND) == ACQUIRE || word(node, NODE_KIND) == FORWARD ? word(node, BUY_SENSORS) : 0;
    if (n > c->work) return 0;
    c->work -= n;
    return 1;
}

static int check_branch(checked *c, bytes_in node, uint32_t number)
{
    bytes_in target = node + 4 * BRANCH_WORDS, match;
    uint64_t n, width;
    if (!holds_words(c, node, 0, BRANCH_WORDS)) return 0;
    n = word(node, BRANCH_TARGETS), width = word(node, BRANCH_WIDTH);
    if (!check_slice(c, node) || !holds(c, word(node, BRANCH_THRESHOLD), 1, 8) || n < 2 || n > MOST_TARGETS) return 0;
    if (!holds_words(c, node, BRANCH_WORDS, n)) return 0;
    for (uint32_t k = 0; k < n; k++)
        if (!is_ahead(c, number, word(target, k)) || !may_look(c, word(target, k))) return 0;
    switch (word(node, BRANCH_RULE)) {
    case THRESHOLD:
    case MARGIN: return n == 2;
    case ARGMAX: return n == width || (width == 1 && n == 2);
    case TOURNAMENT:
        if (HAS(HC_TOURNAMENTS)) break;
        return 0;
    default: return 0;
    }
    if (width != n - 1 || 2 * n - 1 > word(c->image, H_ENTRANTS)) return 0;
    if (!holds_words(c, node, BRANCH_WORDS + n, 2 * (n - 1))) return 0;
    match = target + 4 * n;
    for (uint32_t m = 0; m + 1 < n; m++)
        if (word(match, 2 * m) >= n + m || word(match, 2 * m + 1) >= n + m) return 0;
    return 1;
}

static int check_select(checked *c, bytes_in node, uint32_t number)
{
    bytes_in candidate = node + 4 * SELECT_WORDS;
    if (!holds_words(c, node, 0, SELECT_WORDS) || !is_ahead(c, number, word(node, SELECT_OTHERWISE))) return 0;
    if (!holds_words(c, node, SELECT_WORDS, (uint64_t)CANDIDATE_WORDS * word(node, SELECT_CANDIDATES))) return 0;
    for (uint32_t k = word(node, SELECT_CANDIDATES); k > 0; k--, candidate += 4 * CANDIDATE_WORDS)
        if (!is_ahead(c, number, word(candidate, CANDIDATE_TARGET)) ||
            !check_cost(c, word(candidate, CANDIDATE_COST), word(candidate, CANDIDATE_COSTS)))
            return 0;
    return 1;
}

static int check_answer(checked *c, bytes_in node)
{
    uint32_t classes = word(c->image, H_CLASSES), width, value;
    if (!holds_words(c, node, 0, ANSWER_WORDS) || !check_slice(c, node)) return 0;
    width = word(node, ANSWER_WIDTH);
    value = word(node, ANSWER_KIND);
    if (value && !HAS(HC_VALUES)) return 0;
    if (value && ((value & 0xFF) != 1 || value >> 16 || (value >> 8 > MOST_SHIFT && value >> 8 < 256 - MOST_SHIFT))) return 0;
    if (value ? classes != 0 || width != 1 : width != classes && (width != 1 || classes != 2)) return 0;
    return holds(c, word(node, ANSWER_AT_MARGINS), word(node, ANSWER_MARGINS), 8) && word(node, ANSWER_MARGINS) < UINT32_MAX &&
           all_below(c, word(node, ANSWER_AT_CONFIDENCES), word(node, ANSWER_MARGINS) + 1, 10001);
}

static int check_buying(checked *c, bytes_in node, uint32_t number)
{
    if (!holds_words(c, node, 0, BUY_WORDS) || !holds_words(c, node, BUY_WORDS, word(node, BUY_SENSORS))) return 0;
    for (uint32_t k = 0; k < word(node, BUY_SENSORS); k++)
        if (word(node, BUY_WORDS + k) >= word(c->image, H_SENSORS)) return 0;
    return is_ahead(c, number, word(node, BUY_THEN)) && is_ahead(c, number, word(node, BUY_OTHERWISE));
}

static int check_nodes(checked *c)
{
    for (uint32_t k = word(c->image, H_NODES); k-- > 0;) { /* targets first */
        bytes_in node;
        int is_ok;
        if (!holds(c, get_u32(at(c->image, H_AT_NODES) + 4 * (size_t)k), 1, 4)) return 0;
        node = node_record(c->image, k);
        switch (word(node, NODE_KIND)) {
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

#endif
