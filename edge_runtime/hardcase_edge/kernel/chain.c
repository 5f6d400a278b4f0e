/* SPDX-License-Identifier: Apache-2.0 */
/* Viterbi's algorithm forwards, the labels from the last to the first, and the same backwards for max-marginals. */
#include "chain.h"

/* Labels that a part may have: from first to one before end. */
typedef struct {
    int32_t first, end;
} span;

static inline int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline span span_of(const hc_chain *chain, int32_t fixed)
{
    span s = {0, chain->labels};
    if (fixed != HC_NOT_FIXED) s.first = fixed, s.end = fixed + 1;
    return s;
}

static inline int64_t own(const int64_t *row, int32_t fixed, int32_t y) { return fixed == HC_NOT_FIXED ? row[y] : 0; }

/* best[after]: the best of what leads there. */
static void step_ahead(const hc_chain *chain, const int64_t *before, span from, int64_t *best, span to)
{
    for (int32_t y = from.first; y < from.end; y++) {
        const int64_t *transition = chain->transitions + (size_t)chain->labels * (size_t)y;
        int64_t at = before[y];
        if (y == from.first) {
            for (int32_t z = to.first; z < to.end; z++) best[z] = sum(at, transition[z]);
            continue;
        }
        for (int32_t z = to.first; z < to.end; z++) {
            int64_t value = sum(at, transition[z]);
            best[z] = value > best[z] ? value : best[z];
        }
    }
}

/* The first of the best of a[y] + b[stride * y]. */
static int32_t first_best(const int64_t *a, const int64_t *b, size_t stride, span s)
{
    int32_t best = s.first;
    for (int32_t y = s.first + 1; y < s.end; y++)
        if (sum(a[y], b[stride * (size_t)y]) > sum(a[best], b[stride * (size_t)best])) best = y;
    return best;
}

static int32_t gap_between(const int64_t *ahead, const int64_t *behind, span s)
{
    int64_t best = sum(ahead[s.first], behind[s.first]), second = INT64_MIN;
    if (s.end - s.first < 2) return HC_MAX_GAP;
    for (int32_t y = s.first + 1; y < s.end; y++) {
        int64_t value = sum(ahead[y], behind[y]);
        if (value > best) second = best, best = value;
        else if (value > second) second = value;
    }
    return (uint64_t)best - (uint64_t)second > HC_MAX_GAP ? HC_MAX_GAP : (int32_t)(best - second);
}

static void find_gaps(const hc_chain *chain, const int64_t *scores, const int32_t *fixed, int32_t parts,
                      const int64_t *ahead, int64_t *behind, int32_t *gaps)
{
    size_t k = (size_t)chain->labels;
    int64_t *after = behind + k;
    for (size_t y = 0; y < k; y++) behind[y] = chain->stop[y];
    for (int32_t t = parts - 1;; t--) {
        span to = span_of(chain, fixed[t]), from;
        gaps[t] = gap_between(ahead + k * (size_t)t, behind, to);
        if (t == 0) return;
        from = span_of(chain, fixed[t - 1]);
        for (int32_t z = to.first; z < to.end; z++) after[z] = sum(own(scores + k * (size_t)t, fixed[t], z), behind[z]);
        for (int32_t y = from.first; y < from.end; y++) {
            const int64_t *transition = chain->transitions + k * (size_t)y;
            int64_t best = sum(transition[to.first], after[to.first]);
            for (int32_t z = to.first + 1; z < to.end; z++) {
                int64_t value = sum(transition[z], after[z]);
                best = value > best ? value : best;
            }
            behind[y] = best;
        }
    }
}

void hc_decode(const hc_chain *chain, const int64_t *scores, const int32_t *fixed, int32_t parts, int64_t *work,
               int32_t *labels, int32_t *gaps)
{
    size_t k = (size_t)chain->labels;
    int64_t *ahead = work;
    span s = span_of(chain, fixed[0]);
    for (int32_t y = s.first; y < s.end; y++) ahead[y] = sum(chain->start[y], own(scores, fixed[0], y));
    for (int32_t t = 1; t < parts; t++) {
        span to = span_of(chain, fixed[t]);
        const int64_t *row = scores + k * (size_t)t;
        step_ahead(chain, ahead, s, ahead + k, to);
        ahead += k, s = to;
        for (int32_t y = s.first; y < s.end; y++) ahead[y] = sum(ahead[y], own(row, fixed[t], y));
    }
    labels[parts - 1] = first_best(ahead, chain->stop, 1, s);
    for (int32_t t = parts - 1; t > 0; t--)
        labels[t - 1] = first_best(work + k * (size_t)(t - 1), chain->transitions + labels[t], k, span_of(chain, fixed[t - 1]));
    if (gaps != NULL) find_gaps(chain, scores, fixed, parts, work, work + k * (size_t)parts, gaps);
}
