/* SPDX-License-Identifier: Apache-2.0 */
/* The records of hardcase_edge.joint.session, made of an item in C: what its parts need, what was decided. */
#include "py_items.h"

#include <string.h>

static PyObject *name_requests, *names_part[8], *names_joint[5];

int add_item_records(void)
{
    static const char *const of_part[8] = {"label",   "confidence", "route",  "cost",
                                           "sensors", "trace",      "failed", "unpaid"};
    static const char *const of_item[5] = {"parts", "confidence", "route", "cost", "rounds"};
    name_requests = PyUnicode_InternFromString("requests");
    for (int k = 0; k < 8; k++) names_part[k] = PyUnicode_InternFromString(of_part[k]);
    for (int k = 0; k < 5; k++) names_joint[k] = PyUnicode_InternFromString(of_item[k]);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *make_need_parts(const ItemSession *self)
{
    Py_ssize_t n = 0;
    PyObject *made;
    for (int p = 0; p < self->n; p++)
        for (int at = 0; self->parts[p].state == ASKED && hc_wanted_next(session_of(self, p), &at) >= 0;) n++;
    made = PyTuple_New(n);
    n = 0;
    for (int p = 0; made != NULL && p < self->n; p++)
        for (int at = 0, s; self->parts[p].state == ASKED && (s = hc_wanted_next(session_of(self, p), &at)) >= 0;)
            PyTuple_SetItem(made, n++, Py_BuildValue("(ii)", p, s));
    return instance(self->items->need_parts, &name_sensors, &made, 1);
}

PyObject *make_need_replies(const ItemSession *self)
{
    PyObject *made = PyList_New(0), *whole;
    for (int p = 0; made != NULL && p < self->n; p++) {
        PyObject *pair;
        if (self->parts[p].state != ASKING) continue;
        pair = Py_BuildValue("(iN)", p, request_readings(self->items->image, session_of(self, p)));
        if (pair == NULL || PyList_Append(made, pair) < 0) Py_CLEAR(made);
        Py_XDECREF(pair);
    }
    whole = made == NULL ? NULL : PyList_AsTuple(made);
    Py_XDECREF(made);
    return instance(self->items->need_replies, &name_requests, &whole, 1);
}

static int32_t confidence_at(const table *t, int32_t gap)
{
    Py_ssize_t k = 0;
    while (k < t->n_margins && t->margins[k] <= gap) k++;
    return t->confidences[k];
}

static PyObject *bought_outside(const ItemSession *self, const hc_session *s)
{
    Py_ssize_t n = 0;
    PyObject *made;
    for (int k = 0; k < self->items->image->n_sensors; k++) n += !self->items->is_inner[k] && hc_was_bought(s, k);
    made = PyTuple_New(n);
    n = 0;
    for (int k = 0; made != NULL && k < self->items->image->n_sensors; k++)
        if (!self->items->is_inner[k] && hc_was_bought(s, k)) PyTuple_SetItem(made, n++, PyLong_FromLong(k));
    return made;
}

PyObject *make_joint_decision(ItemSession *self)
{
    const Items *items = self->items;
    int is_known = items->of_part.n_margins || items->of_item.n_margins, route = HC_ROUTE_LOCAL, free;
    int64_t cost = 0, mean;
    int32_t least, confidence = BASIS_POINTS;
    PyObject *parts, *values[5];
    if (tell_all(self) < 0) return NULL;
    memset(self->gaps, 0, 4 * (size_t)self->n);
    hc_decode(&items->chain, self->scores, self->fixed, self->n, self->work, self->labels, is_known ? self->gaps : NULL);
    free = survey(self, &mean, &least);
    parts = PyTuple_New(self->n);
    for (int p = 0; parts != NULL && p < self->n; p++) {
        const hc_session *s = session_of(self, p);
        int is_fixed = self->fixed[p] != HC_NOT_FIXED;
        int32_t own = is_fixed ? s->confidence : confidence_at(&items->of_part, self->gaps[p]);
        PyObject *name = PyTuple_GetItem(items->image->route_names, s->route), *made;
        PyObject *of_part[8] = {PyLong_FromLong(self->labels[p]), PyLong_FromLong(own), name,
                                PyLong_FromLongLong(s->spent - s->saved), bought_outside(self, s),
                                tuple_of(s->steps, hc_visited, s), sensors_that(hc_has_failed, items->image, s),
                                sensors_that(hc_was_unpaid, items->image, s)};
        Py_XINCREF(name);
        if (is_fixed && own < confidence) confidence = own;
        cost += s->spent - s->saved;
        if (s->route > route) route = s->route; /* degraded is above cloud, and cloud above local */
        made = instance(items->part_decision, names_part, of_part, 8);
        if (made == NULL) Py_CLEAR(parts);
        else PyTuple_SetItem(parts, p, made);
    }
    if (free) {
        int32_t own = confidence_at(&items->of_item, least);
        confidence = own < confidence ? own : confidence;
    }
    values[0] = parts;
    values[1] = PyLong_FromLong(confidence);
    values[2] = Py_NewRef(PyTuple_GetItem(items->image->route_names, route));
    values[3] = PyLong_FromLongLong(cost);
    values[4] = PyLong_FromLong(self->rounds);
    return instance(items->joint_decision, names_joint, values, 5);
}
