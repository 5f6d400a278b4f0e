/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an item: each walked as far as it goes alone, and what they tell the chain and each other. */
#include "py_items.h"

static int64_t *row_of(const ItemSession *self, int p) { return self->scores + (size_t)self->items->chain.labels * (size_t)p; }

int64_t left_for_parts(const ItemSession *self)
{
    int64_t amount = self->budget - self->reserved;
    for (int p = 0; p < self->n; p++) amount -= self->parts[p].spent;
    return amount < 0 ? 0 : amount;
}

int walk_part(ItemSession *self, int p)
{
    hc_session *s = session_of(self, p);
    part *one = &self->parts[p];
    int action;
    if (self->budget != HC_NO_BUDGET) hc_afford(s, left_for_parts(self));
    action = hc_next(s);
    if (action == HC_NEED_SENSORS) {
        one->state = self->items->is_inner[hc_wanted(s)] ? WAITING : ASKED;
        for (int at = 0, sensor; one->state == ASKED && self->costs != NULL && (sensor = hc_wanted_next(s, &at)) >= 0;) {
            PyObject *cost = PySequence_GetItem(self->costs, sensor);
            int64_t amount = cost == NULL ? -1 : PyLong_AsLongLong(cost);
            Py_XDECREF(cost);
            if (PyErr_Occurred()) return -1;
            self->reserved += amount;
        }
    } else if (action == HC_NEED_REPLY) {
        one->state = ASKING;
        one->spent = s->spent;
    } else {
        one->state = ENDED;
    }
    return 0;
}

/* What a part that stands at this node tells the chain; one score stands for the pair (0, s). */
static int tell(ItemSession *self, int p, int node)
{
    const int32_t *slice = self->items->nodes + NODE * (Py_ssize_t)node; /* nodes are as many as the image has */
    int64_t *row = row_of(self, p);
    int width = slice[2] - slice[1];
    if (slice[0] < 0 || width < 1 || width > self->items->chain.labels) return -1;
    if (width == 1) *row++ = 0;
    return hc_scores(session_of(self, p), slice[0], slice[1], width, row);
}

int tell_all(ItemSession *self)
{
    for (int p = 0; p < self->n; p++) {
        hc_session *s = session_of(self, p);
        int node = self->parts[p].state == WAITING ? hc_node(s) : hc_visited(s, s->steps - 1);
        if (self->fixed[p] == HC_NOT_FIXED && tell(self, p, node) < 0) {
            PyErr_SetString(self->items->error, "the program has no scores where a part stands");
            return -1;
        }
    }
    return 0;
}

static int32_t cut(int64_t value) { return value > HC_MAX_GAP ? HC_MAX_GAP : (int32_t)value; }

/* What the inner sensor gives of a part; joint/definition.py has the order. */
static void describe(const ItemSession *self, int p, int64_t mean, int32_t least, int32_t *out)
{
    const int64_t *row = row_of(self, p);
    const int32_t *gaps = self->gaps;
    int64_t best = row[0], second = INT64_MIN;
    for (int y = 1; y < self->items->chain.labels; y++) {
        if (row[y] > best) second = best, best = row[y];
        else if (row[y] > second) second = row[y];
    }
    out[0] = gaps[p];
    out[1] = gaps[p ? p - 1 : p];
    out[2] = gaps[p + 1 < self->n ? p + 1 : p];
    out[3] = (int32_t)mean;
    out[4] = least;
    out[5] = cut((int64_t)((uint64_t)best - (uint64_t)second));
    out[6] = cut((int64_t)((uint64_t)best - (uint64_t)row[self->labels[p]]));
    out[7] = p == 0;
    out[8] = p == self->n - 1;
    out[9] = self->n;
    out[10] = p;
    out[11] = self->rounds - 1;
}

int survey(const ItemSession *self, int64_t *mean, int32_t *least)
{
    int64_t sum = 0;
    int free = 0;
    *least = HC_MAX_GAP;
    for (int p = 0; p < self->n; p++) {
        if (self->fixed[p] != HC_NOT_FIXED) continue;
        sum += self->gaps[p];
        if (self->gaps[p] < *least) *least = self->gaps[p];
        free++;
    }
    *mean = free ? sum / free : 0;
    return free;
}

int release(ItemSession *self)
{
    const Items *items = self->items;
    int32_t least, features[FEATURES];
    int64_t mean, highest = items->threshold;
    int best = -1;
    self->rounds++;
    if (tell_all(self) < 0) return -1;
    hc_decode(&items->chain, self->scores, self->fixed, self->n, self->work, self->labels, self->gaps);
    survey(self, &mean, &least);
    for (int p = 0; items->is_anytime && p < self->n; p++) {
        hc_session *trial = session_of(self, self->n);
        const int32_t *policy;
        int64_t score;
        if (self->parts[p].state != WAITING) continue;
        describe(self, p, mean, least, features);
        hc_fork(trial, session_of(self, p));
        policy = items->nodes + NODE * (Py_ssize_t)hc_node(trial) + 3;
        hc_feed(trial, hc_wanted(trial), features);
        if (hc_scores(trial, policy[0], policy[1], 1, &score) < 0) {
            PyErr_SetString(items->error, "a barrier of an anytime release has no policy");
            return -1;
        }
        if (score > highest) best = p, highest = score;
    }
    for (int p = 0; p < self->n; p++) {
        hc_session *s = session_of(self, p);
        if (self->parts[p].state != WAITING || (best >= 0 && p != best)) continue;
        describe(self, p, mean, least, features);
        hc_feed(s, hc_wanted(s), features);
        self->parts[p].state = READY;
    }
    return 0;
}
