/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes: what each kind does, and where the walk goes from there (docs/SPEC-program-v1.md section 4.2). */
#ifndef HARDCASE_NODES_H
#define HARDCASE_NODES_H

#include "hc_costs.h"
#include "hc_readings.h"
#include "hc_scorers.h"

/* Targets that acquire a sensor with one of the flags ``without`` cannot be had; with ANYTHING all can. */
static int can_have(const hc_session *s, uint32_t target, unsigned without)
{
    bytes_in node = node_record(image_of(s), target);
    if (without == ANYTHING) return 1;
    if (word(node, NODE_KIND) == ACQUIRE) return can_buy(s, node, without);
    if (HAS(HC_FORWARDS) && word(node, NODE_KIND) == FORWARD)
        return fits(s, add64(price(s, node), request_cost(s)));
    return 1;
}

static uint32_t tournament(hc_session *s, bytes_in node, const unsigned char *scores, unsigned without)
{
    uint32_t n = word(node, BRANCH_TARGETS), none = 1;
    bytes_in target = node + 4 * BRANCH_WORDS, match = target + 4 * (size_t)n;
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
    uint32_t n = word(node, BRANCH_TARGETS), width = word(node, BRANCH_WIDTH), rule = word(node, BRANCH_RULE), best;
    bytes_in target = node + 4 * BRANCH_WORDS;
    int64_t margin;
    if (HAS(HC_TOURNAMENTS) && rule == TOURNAMENT) {
        best = tournament(s, node, scores, without);
        return word(target, best < n ? best : 0);
    }
    margin = margin_of(scores, width, &best);
    if (rule != ARGMAX) {
        int64_t threshold = get_i64(image_of(s) + word(node, BRANCH_THRESHOLD));
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

static uint32_t branch(hc_session *s, bytes_in node)
{
    const unsigned char *scores = scores_of(s, word(node, BRANCH_SCORER)) + 8 * (size_t)word(node, BRANCH_START);
    uint32_t chosen = choose(s, node, scores, FAILED);
    if (s->has_failed) {
        bytes_in wanted = node_record(image_of(s), choose(s, node, scores, 0));
        if (word(wanted, NODE_KIND) == ACQUIRE) note(s, wanted, LACKED);
    }
    if (s->budget != HC_NO_BUDGET) {
        bytes_in own = node_record(image_of(s), choose(s, node, scores, ANYTHING));
        if (word(own, NODE_KIND) == ACQUIRE && !can_buy(s, own, 0)) note(s, own, UNPAID);
    }
    return chosen;
}

static uint32_t select_model(const hc_session *s, bytes_in node)
{
    bytes_in candidate = node + 4 * SELECT_WORDS, coefficients;
    for (uint32_t k = word(node, SELECT_CANDIDATES); k > 0; k--, candidate += 4 * CANDIDATE_WORDS) {
        if ((uint32_t)s->item_size > word(candidate, CANDIDATE_SIZE)) continue;
        coefficients = image_of(s) + word(candidate, CANDIDATE_COST);
        if (fits(s, polynomial(coefficients, word(candidate, CANDIDATE_COSTS), s->item_size)))
            return word(candidate, CANDIDATE_TARGET);
    }
    return word(node, SELECT_OTHERWISE);
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
    const unsigned char *scores = scores_of(s, word(node, ANSWER_SCORER)) + 8 * (size_t)word(node, ANSWER_START);
    bytes_in image = image_of(s), margins = image + word(node, ANSWER_AT_MARGINS);
    uint32_t best, k = 0;
    int64_t margin = margin_of(scores, word(node, ANSWER_WIDTH), &best), result = best;
    if (HAS(HC_VALUES) && word(node, ANSWER_KIND)) {
        margin = score(scores, 0);
        result = shifted(margin, word(node, ANSWER_KIND));
    }
    while (k < word(node, ANSWER_MARGINS) && get_i64(margins + 8 * (size_t)k) <= margin) k++;
    decide(s, result, get_u16(image + word(node, ANSWER_AT_CONFIDENCES) + 2 * (size_t)k),
           s->is_degraded ? HC_ROUTE_DEGRADED : HC_ROUTE_LOCAL);
}

/* Ask for the sensors of a node that have none of these flags; 0 if there are none. */
static int want(hc_session *s, bytes_in node, unsigned without)
{
    unsigned char *flags = part(s, S_SENSORS);
    int any = 0;
    for (uint32_t k = 0; k < word(node, BUY_SENSORS); k++) {
        unsigned char *flag = flags + word(node, BUY_WORDS + k);
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
        if (!want(s, node, BOUGHT)) s->at = word(node, BUY_THEN);
    } else {
        if (!can_buy(s, node, 0)) note(s, node, UNPAID);
        note(s, node, LACKED);
        s->at = word(node, BUY_OTHERWISE);
    }
}

static void write_missing(hc_session *s)
{
    bytes_in image = image_of(s);
    const unsigned char *flags = part(s, S_SENSORS);
    for (uint32_t k = 0; k < word(image, H_SENSORS); k++) {
        bytes_in record = sensor_record(image, k);
        bytes_in feature = at(image, H_AT_FEATURES) + (size_t)FEATURE_BYTES * word(record, SENSOR_FEATURE);
        if ((flags[k] & (BOUGHT | FAILED)) == BOUGHT) continue;
        for (uint32_t f = word(record, SENSOR_FEATURES); f > 0; f--, feature += FEATURE_BYTES)
            put_request(s, feature, NULL);
    }
}

static void forward(hc_session *s, bytes_in node)
{
    if (!s->has_cloud) {
        s->is_degraded = 1;
        s->at = word(node, BUY_THEN);
    } else if (!fits(s, add64(price(s, node), request_cost(s)))) {
        s->at = word(node, BUY_THEN);
    } else if (!want(s, node, BOUGHT | FAILED)) {
        note(s, node, LACKED);
        s->spent = add64(s->spent, request_cost(s));
        write_missing(s);
        s->phase = WAIT_REPLY;
    }
}

#endif
