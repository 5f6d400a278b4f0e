/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase: what a session needs that is one of several and shares a budget with them (docs/SPEC-joint-v1.md). */
#ifndef HARDCASE_PARTS_H
#define HARDCASE_PARTS_H

#include "hardcase.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The node at which the session stands. */
int hc_node(const hc_session *s);

/* What it may spend from now on; HC_NO_BUDGET for no limit. */
void hc_afford(hc_session *s, int64_t left);

/* Make ``to``, which has the memory of a session, one that has read what this one has: to begin another part of an item, or
 * to try out what a reading would change. Scores, trace and request are not copied; ``to`` computes its scores anew. */
void hc_fork(hc_session *to, const hc_session *s);

/* Outputs of a scorer of what was read so far, which the caller has proved to be readable: 0, or HC_ERROR_ARGUMENT if the
 * program does not have them. */
int hc_scores(hc_session *s, int scorer, int start, int n, int64_t *out);

#ifdef __cplusplus
}
#endif

#endif
