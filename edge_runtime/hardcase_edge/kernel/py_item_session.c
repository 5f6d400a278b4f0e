/* SPDX-License-Identifier: Apache-2.0 */
/* ItemSession: one item; the methods and errors of hardcase_edge.joint.session.JointSession, which says what each step is
 * for; both are compared on random items. */
#include "py_items.h"

#include <string.h>

enum { NONE, SENSORS, REPLIES, DECIDED };

static PyObject *item_next_action(PyObject *object, PyObject *unused)
{
    ItemSession *self = (ItemSession *)object;
    (void)unused;
    while (self->action == NULL) {
        int n[5] = {0};
        for (int p = 0; p < self->n; p++) {
            if (self->parts[p].state == READY && walk_part(self, p) < 0) return NULL;
            n[self->parts[p].state]++;
        }
        self->kind = n[ASKED] ? SENSORS : n[ASKING] ? REPLIES : n[WAITING] ? NONE : DECIDED;
        if (self->kind == NONE) {
            if (release(self) < 0) return NULL;
            continue;
        }
        self->action = self->kind == SENSORS   ? make_need_parts(self)
                       : self->kind == REPLIES ? make_need_replies(self)
                                               : make_joint_decision(self);
        if (self->action == NULL) return NULL;
    }
    return Py_NewRef(self->action);
}

static PyObject *item_feed(PyObject *object, PyObject *readings)
{
    ItemSession *self = (ItemSession *)object;
    PyObject *asked;
    Py_ssize_t n, k;
    asked = asked_sensors(self->action, self->kind == SENSORS, self->items->error);
    if (asked == NULL) return NULL;
    n = PyTuple_Size(asked);
    for (k = 0; k < n && PyObject_Size(readings) == n && PySequence_Contains(readings, PyTuple_GetItem(asked, k)) == 1; k++) {}
    if (k < n && !PyErr_Occurred()) wrong_readings("", readings, asked, self->items->error);
    for (k = 0; !PyErr_Occurred() && k < n; k++) {
        PyObject *key = PyTuple_GetItem(asked, k), *values = PyObject_GetItem(readings, key);
        int p = (int)PyLong_AsLong(PyTuple_GetItem(key, 0)), sensor = (int)PyLong_AsLong(PyTuple_GetItem(key, 1));
        if (values != NULL) feed_object(self->items->image, session_of(self, p), sensor, values, 0, -1);
        Py_XDECREF(values);
    }
    Py_DECREF(asked);
    if (PyErr_Occurred()) return NULL;
    for (int p = 0; p < self->n; p++) {
        if (self->parts[p].state != ASKED) continue;
        self->parts[p].state = READY;
        self->parts[p].spent = session_of(self, p)->spent;
    }
    self->reserved = 0;
    Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

/* The part about which something is reported, or -1 with an exception. */
static int part_asking(const ItemSession *self, PyObject *which)
{
    int beyond;
    int64_t p = to_i64(which, &beyond);
    if (PyErr_Occurred()) return -1;
    if (self->action != NULL && self->kind == REPLIES && p >= 0 && p < self->n && self->parts[p].state == ASKING)
        return (int)p;
    return PyErr_Format(self->items->error, "a reply came for part %S, but the session did not ask for one", which), -1;
}

static PyObject *answered(ItemSession *self, int p)
{
    int is_open = 0;
    self->parts[p].state = READY;
    for (int k = 0; k < self->n; k++) is_open |= self->parts[k].state == ASKING;
    if (!is_open) Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

static PyObject *item_reply(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    ItemSession *self = (ItemSession *)object;
    int p;
    if (n_args != 3) return PyErr_SetString(PyExc_TypeError, "reply takes a part, a result and a confidence"), NULL;
    if ((p = part_asking(self, args[0])) < 0) return NULL;
    if (reply_objects(self->items->image, session_of(self, p), args[1], args[2]) < 0) return NULL;
    self->fixed[p] = (int32_t)session_of(self, p)->result;
    return answered(self, p);
}

static PyObject *item_no_reply(PyObject *object, PyObject *which)
{
    ItemSession *self = (ItemSession *)object;
    int p = part_asking(self, which);
    if (p < 0) return NULL;
    hc_no_reply(session_of(self, p));
    return answered(self, p);
}

static PyObject *item_resend(PyObject *object, PyObject *which)
{
    ItemSession *self = (ItemSession *)object;
    int p = part_asking(self, which), may;
    if (p < 0) return NULL;
    if (self->budget != HC_NO_BUDGET) hc_afford(session_of(self, p), left_for_parts(self));
    may = hc_resend(session_of(self, p));
    self->parts[p].spent = session_of(self, p)->spent;
    return PyBool_FromLong(may);
}

static void item_free(PyObject *object)
{
    ItemSession *self = (ItemSession *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->action), Py_XDECREF(self->costs), Py_XDECREF((PyObject *)self->items);
    PyMem_Free(self->sessions);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* One block holds all sessions, and behind them scores, parts and numbers of parts. Most of it is never written: nobody
 * reads a score that was not computed, or a trace beyond its steps. */
static int allocate(ItemSession *self, size_t n)
{
    size_t k = (size_t)self->items->chain.labels, work = HC_CHAIN_WORK(n, k);
    self->stride = (self->items->image->session_bytes + 7) & ~(size_t)7;
    self->sessions = PyMem_Malloc(self->stride * (n + 1) + 8 * (n * k + work) + n * (sizeof(part) + 12));
    if (self->sessions == NULL) return PyErr_NoMemory(), -1;
    self->scores = (int64_t *)(self->sessions + self->stride * (n + 1));
    self->work = self->scores + n * k;
    self->parts = (part *)(self->work + work);
    self->fixed = (int32_t *)(self->parts + n);
    self->labels = self->fixed + n;
    self->gaps = self->labels + n;
    memset(self->parts, 0, n * sizeof(part));
    return 0;
}

PyObject *items_session(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Items *items = (Items *)object;
    ItemSession *self;
    options o;
    int64_t n;
    int overflow;
    if (n_args != 1) return PyErr_SetString(PyExc_TypeError, "a session takes the number of parts, and keywords"), NULL;
    if (read_options(&o, args + 1, names, 0) < 0) return NULL;
    n = to_i64(args[0], &overflow);
    if (PyErr_Occurred()) return NULL;
    if (n < 1 || n > items->most_parts)
        return PyErr_Format(items->error, "an item of %S parts; this program decides 1 to %d", args[0], items->most_parts);
    self = (ItemSession *)PyType_GenericAlloc((PyTypeObject *)items->session_type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(object);
    self->items = items;
    self->n = (int)n;
    self->budget = HC_NO_BUDGET;
    if (o.budget != NULL && o.budget != Py_None) self->budget = to_i64(o.budget, &overflow);
    if (PyErr_Occurred() || allocate(self, (size_t)n) < 0) goto failed;
    if (start_session(session_of(self, 0), items->image, &o) < 0) goto failed;
    for (int p = 1; p < self->n; p++) hc_fork(session_of(self, p), session_of(self, 0));
    for (int p = 0; p < self->n; p++) self->fixed[p] = HC_NOT_FIXED;
    if (self->budget != HC_NO_BUDGET) {
        self->costs = PyObject_CallFunction(items->costs, "O", o.item_size == NULL ? Py_None : o.item_size);
        if (self->costs == NULL) goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyMethodDef item_methods[] = {
    {"next_action", item_next_action, METH_NOARGS, NULL},
    {"feed", item_feed, METH_O, NULL},
    {"reply", (PyCFunction)(void (*)(void))item_reply, METH_FASTCALL, NULL},
    {"no_reply", item_no_reply, METH_O, NULL},
    {"resend", item_resend, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot item_slots[] = {{Py_tp_dealloc, item_free}, {Py_tp_methods, item_methods}, {0, NULL}};
static PyType_Spec item_spec = {"hardcase_edge._kernel.ItemSession", sizeof(ItemSession), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, item_slots};

PyObject *make_item_session_type(void) { return PyType_FromSpec(&item_spec); }
