/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase: the chain of a joint program, in integers, without allocation (docs/SPEC-joint-v1.md section 3). */
#ifndef HARDCASE_CHAIN_H
#define HARDCASE_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HC_MAX_GAP INT32_MAX /* a gap is cut off here, and a part with one label has this one */
#define HC_NOT_FIXED (-1)

typedef struct {
    int32_t labels;             /* K, at least 2 */
    const int64_t *transitions; /* K * K, from [K * before + after] */
    const int64_t *start, *stop; /* K each */
} hc_chain;

/* Numbers of int64_t that hc_decode needs to work in. */
#define HC_CHAIN_WORK(parts, labels) (((size_t)(parts) + 2) * (size_t)(labels))

/* The best labels of all parts together, ties to the lowest; and by how much each is the best.
 *
 * scores  parts rows of K; the row of a fixed part is not read
 * fixed   of each part the only label that it may have, or HC_NOT_FIXED
 * parts   at least 1
 * work    HC_CHAIN_WORK(parts, K) numbers, whatever they hold
 * labels  written, one a part
 * gaps    written, one a part; NULL: they are not wanted
 *
 * The caller has proved that no sum overflows (rule J6); in a forged chain sums wrap around, harmlessly. */
void hc_decode(const hc_chain *chain, const int64_t *scores, const int32_t *fixed, int32_t parts, int64_t *work,
               int32_t *labels, int32_t *gaps);

#ifdef __cplusplus
}
#endif

#endif
