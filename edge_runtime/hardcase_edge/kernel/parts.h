/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase: what a session needs that is one of several and shares a budget with them (docs/SPEC-joint-v1.md).
 *
 * A copy of a session's memory is a session of its own: so a driver tries out what a reading would change. */
#ifndef HARDCASE_PARTS_H
#define HARDCASE_PARTS_H

#include "hardcase.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many nodes an image has. */
uint32_t hc_nodes(const void *image);

/* The node at which the session stands. */
int hc_node(const hc_session *s);

/* What it may spend from now on; HC_NO_BUDGET for no limit. */
void hc_afford(hc_session *s, int64_t left);

/* Outputs of a scorer of what was read so far, which the caller has proved to be readable: 0, or HC_ERROR_ARGUMENT if the
 * program does not have them. */
int hc_scores(hc_session *s, int scorer, int start, int n, int64_t *out);

#ifdef __cplusplus
}
#endif

#endif
