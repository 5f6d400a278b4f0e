/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel and parts.h in one unit, because scores are the kernel's own. Microcontrollers compile hardcase.c alone. */
#include "hardcase.c"

#include "parts.h"

int hc_node(const hc_session *s) { return (int)s->at; }

void hc_afford(hc_session *s, int64_t left)
{
    s->budget = left == HC_NO_BUDGET || s->spent > INT64_MAX - left ? HC_NO_BUDGET : s->spent + left;
}

void hc_fork(hc_session *to, const hc_session *s)
{
    bytes_in image = image_of(s);
    memcpy(to, s, word(image, S_SCORES)); /* with the keys of readings */
    memcpy(part(to, S_WIDE), part_of(s, S_WIDE), 2 * (size_t)word(image, H_WIDE));
    memcpy(part(to, S_SENSORS), part_of(s, S_SENSORS), word(image, H_SENSORS));
    memset(part(to, S_IS_SCORED), 0, word(image, H_SCORERS));
    memcpy(part(to, S_SMALL), part_of(s, S_SMALL), word(image, H_SMALL));
}

int hc_scores(hc_session *s, int scorer, int start, int n, int64_t *out)
{
    bytes_in image = image_of(s), record;
    const unsigned char *scores;
    if (scorer < 0 || (uint32_t)scorer >= word(image, H_SCORERS) || start < 0 || n < 1) return HC_ERROR_ARGUMENT;
    record = scorer_record(image, (uint32_t)scorer);
    if (word(record, SCORER_KIND) == LEAF) return HC_ERROR_ARGUMENT;
    if ((uint64_t)start + (uint64_t)n > word(record, SCORER_OUTPUTS)) return HC_ERROR_ARGUMENT;
    scores = scores_of(s, (uint32_t)scorer);
    for (int k = 0; k < n; k++) out[k] = score(scores, (uint32_t)(start + k));
    return 0;
}
