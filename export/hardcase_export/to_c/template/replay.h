/* SPDX-License-Identifier: Apache-2.0 */
/* Golden cases: everything that a decision depends on, and the whole trace that must come of it.
 *
 * words     the number of cases, then for each what it is given and what is expected, as said below
 * readings  of case after case; offsets[k] is where sensor k's begin within a case, the last its length in bytes
 */
#ifndef REPLAY_H
#define REPLAY_H

#include "hardcase.h"

typedef struct hc_golden {
    const void *image;
    int n_sensors;
    const int64_t *words;
    const void *readings;
    const uint32_t *offsets;
} hc_golden;

static inline int hc_is_in(int64_t wanted, const int64_t *list, int64_t n)
{
    while (n > 0)
        if (list[--n] == wanted) return 1;
    return 0;
}

/* Drive one case to its end. words: budget (-1: none), item size, cloud, has a reply, its result and confidence, number
 * of failing sensors, those sensors. */
static inline void hc_replay_case(const hc_golden *g, hc_session *s, const int64_t *words,
                                  const unsigned char *readings)
{
    hc_start(s, g->image, words[0] < 0 ? HC_NO_BUDGET : words[0], (int32_t)words[1], (int)words[2]);
    for (;;) {
        switch (hc_next(s)) {
        case HC_NEED_SENSORS:
            for (int k; (k = hc_wanted(s)) >= 0;)
                hc_feed(s, k, hc_is_in(k, words + 7, words[6]) ? NULL : readings + g->offsets[k]);
            break;
        case HC_NEED_REPLY:
            if (words[3])
                hc_reply(s, words[4], (int)words[5]);
            else
                hc_no_reply(s);
            break;
        default:
            return;
        }
    }
}

/* Is this decision the expected one? expected: route, result, confidence, cost, number of sensors, sensors, number of
 * nodes, nodes. */
static inline int hc_is_as(const hc_session *s, int n_sensors, const int64_t *expected)
{
    const int64_t *sensors = expected + 4, *trace = sensors + 1 + sensors[0];
    int same = s->route == expected[0] && s->result == expected[1] && s->confidence == expected[2]
               && s->spent - s->saved == expected[3] && s->steps == trace[0];
    for (int k = 0; k < n_sensors; k++)
        same &= hc_was_bought(s, k) == hc_is_in(k, sensors + 1, sensors[0]);
    for (int k = 0; same && k < (int)trace[0]; k++)
        same = hc_visited(s, k) == trace[1 + k];
    return same;
}

/* Replay all; returns how many are as expected, and in first_wrong the number of the first that is not, or -1. */
static inline int hc_replay(const hc_golden *g, hc_session *s, int *first_wrong)
{
    const int64_t *at = g->words + 1;
    const unsigned char *readings = (const unsigned char *)g->readings;
    int right = 0;
    *first_wrong = -1;
    for (int k = 0; k < (int)g->words[0]; k++) {
        const int64_t *expected = at + 7 + at[6];
        hc_replay_case(g, s, at, readings);
        if (hc_is_as(s, g->n_sensors, expected))
            right++;
        else if (*first_wrong < 0)
            *first_wrong = k;
        at = expected + 5 + expected[4];
        at += 1 + at[0];
        readings += g->offsets[g->n_sensors];
    }
    return right;
}

#endif
