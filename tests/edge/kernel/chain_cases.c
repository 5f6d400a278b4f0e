/* SPDX-License-Identifier: Apache-2.0 */
/* Random chains beside all labels of all parts: chain_cases SEED N prints how many were compared, or what differs. */
#include <stdio.h>
#include <stdlib.h>

#include "chain.h"

enum { MOST_K = 4, MOST_PARTS = 5 };

static uint64_t state;

static int64_t draw(int64_t low, int64_t high)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return low + (int64_t)(state % (uint64_t)(high - low + 1));
}

static int64_t total(const hc_chain *c, const int64_t *scores, const int32_t *fixed, int n, const int *y)
{
    int64_t sum = c->start[y[0]] + c->stop[y[n - 1]];
    for (int t = 0; t < n; t++) {
        if (fixed[t] == HC_NOT_FIXED) sum += scores[c->labels * t + y[t]];
        else if (fixed[t] != y[t]) return INT64_MIN;
        if (t) sum += c->transitions[c->labels * y[t - 1] + y[t]];
    }
    return sum;
}

/* The next labels in the order of ties: the last part's label counts most. */
static int next(int *y, int n, int k)
{
    for (int t = 0; t < n; t++) {
        if (++y[t] < k) return 1;
        y[t] = 0;
    }
    return 0;
}

static int differs(void)
{
    int k = (int)draw(2, MOST_K), n = (int)draw(1, MOST_PARTS), y[MOST_PARTS] = {0}, best[MOST_PARTS] = {0};
    int64_t span = draw(0, 3) ? draw(0, 3) : (int64_t)1 << draw(4, 58), top = INT64_MIN;
    int64_t *weights = malloc(8 * (size_t)(k * (k + 2))), *scores = malloc(8 * (size_t)(k * n));
    int64_t *work = malloc(8 * HC_CHAIN_WORK(n, k)), other[MOST_PARTS][MOST_K];
    int32_t *fixed = malloc(4 * (size_t)n), *labels = malloc(4 * (size_t)n), *gaps = malloc(4 * (size_t)n);
    hc_chain c = {k, weights, weights + k * k, weights + k * k + k};
    int wrong = 0;
    for (int i = 0; i < k * (k + 2); i++) weights[i] = draw(-span, span);
    for (int i = 0; i < k * n; i++) scores[i] = draw(-span, span);
    for (int t = 0; t < n; t++) {
        fixed[t] = draw(0, 4) ? HC_NOT_FIXED : (int32_t)draw(0, k - 1);
        for (int z = 0; z < k; z++) other[t][z] = INT64_MIN;
    }
    do {
        int64_t sum = total(&c, scores, fixed, n, y);
        if (sum == INT64_MIN) continue;
        if (sum > top) {
            top = sum;
            for (int t = 0; t < n; t++) best[t] = y[t];
        }
        for (int t = 0; t < n; t++)
            if (sum > other[t][y[t]]) other[t][y[t]] = sum;
    } while (next(y, n, k));
    hc_decode(&c, scores, fixed, n, work, labels, draw(0, 7) ? gaps : NULL);
    hc_decode(&c, scores, fixed, n, work, labels, gaps);
    for (int t = 0; t < n; t++) {
        int64_t second = INT64_MIN, gap = HC_MAX_GAP;
        for (int z = 0; z < k; z++)
            if (z != best[t] && other[t][z] > second) second = other[t][z];
        if (fixed[t] == HC_NOT_FIXED && top - second < gap) gap = top - second;
        wrong |= labels[t] != best[t] || gaps[t] != gap;
    }
    free(weights), free(scores), free(work), free(fixed), free(labels), free(gaps);
    return wrong;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[2]) : 0;
    state = 0x9e3779b97f4a7c15u ^ (argc > 1 ? strtoull(argv[1], NULL, 10) : 0);
    for (int k = 0; k < n; k++)
        if (differs()) return printf("chain %d differs\n", k), 1;
    return printf("%d\n", n), 0;
}
