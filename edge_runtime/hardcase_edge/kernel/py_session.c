/* SPDX-License-Identifier: Apache-2.0 */
/* Session: one decision; the methods and errors of hardcase_edge.session.session.Session. */
#include "py_module.h"

#include <string.h>

typedef struct {
    PyObject_HEAD
    Image *image;
    PyObject *action; /* what was last asked for; NULL: ask the kernel */
    int kind;
    hc_session *session; /* in memory of its own */
} Session;

PyObject *image_session(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Image *image = (Image *)object;
    options o;
    Session *self;
    if (n_args != 0) return PyErr_SetString(PyExc_TypeError, "a session takes keywords only"), NULL;
    if (read_options(&o, args, names, 0) < 0) return NULL;
    self = (Session *)PyType_GenericAlloc((PyTypeObject *)image->session_type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(object);
    self->image = image;
    self->session = PyMem_Malloc(image->session_bytes);
    if (self->session == NULL) PyErr_NoMemory();
    if (self->session == NULL || start_session(self->session, image, &o) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void session_free(PyObject *object)
{
    Session *self = (Session *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->action);
    Py_XDECREF((PyObject *)self->image);
    PyMem_Free(self->session);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *session_next_action(PyObject *object, PyObject *unused)
{
    Session *self = (Session *)object;
    (void)unused;
    if (self->action == NULL) {
        self->kind = hc_next(self->session);
        self->action = self->kind == HC_NEED_SENSORS ? make_need_sensors(self->image, self->session)
                       : self->kind == HC_NEED_REPLY ? make_need_reply(self->image, self->session)
                                                     : make_decision(self->image, self->session);
        if (self->action == NULL) return NULL;
    }
    Py_INCREF(self->action);
    return self->action;
}

static int64_t cost_said(PyObject *costs, PyObject *sensor)
{
    PyObject *said = costs == NULL || costs == Py_None ? NULL : PyObject_CallMethod(costs, "get", "O", sensor);
    int64_t cost = -1;
    int overflow = 0;
    if (said != NULL && Py_TYPE(said) == &PyLong_Type) cost = PyLong_AsLongLongAndOverflow(said, &overflow);
    Py_XDECREF(said);
    return overflow ? -1 : cost;
}

static PyObject *session_feed(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Session *self = (Session *)object;
    PyObject *readings = n_args > 0 ? args[0] : NULL, *costs = n_args > 1 ? args[1] : NULL, *asked;
    Py_ssize_t n;
    int is_right;
    if (names != NULL && PyTuple_Size(names) == 1 && n_args == 1 &&
        PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "costs") == 0)
        costs = args[1];
    else if (n_args < 1 || n_args > 2 || (names != NULL && PyTuple_Size(names) > 0))
        return PyErr_SetString(PyExc_TypeError, "feed takes readings, and costs"), NULL;
    asked = asked_sensors(self->action, self->kind == HC_NEED_SENSORS, self->image->error);
    if (asked == NULL) return NULL;
    n = PyTuple_Size(asked);
    is_right = PyObject_Size(readings) == n;
    for (Py_ssize_t k = 0; is_right && k < n; k++) is_right = PySequence_Contains(readings, PyTuple_GetItem(asked, k)) == 1;
    if (!is_right && !PyErr_Occurred()) wrong_readings("sensors ", readings, asked, self->image->error);
    for (Py_ssize_t k = 0; is_right && k < n; k++) {
        PyObject *sensor = PyTuple_GetItem(asked, k), *values = PyObject_GetItem(readings, sensor);
        int64_t cost = values == NULL ? -1 : cost_said(costs, sensor);
        is_right = values != NULL && !PyErr_Occurred() &&
                   feed_object(self->image, self->session, (int)PyLong_AsLong(sensor), values, 0, cost) == 0;
        Py_XDECREF(values);
    }
    Py_DECREF(asked);
    if (!is_right) return NULL;
    Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

static int needs_reply(const Session *self)
{
    if (self->action != NULL && self->kind == HC_NEED_REPLY) return 1;
    PyErr_SetString(self->image->error, "a reply came, but the session did not ask for one; call next_action first");
    return 0;
}

static PyObject *session_reply(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    Session *self = (Session *)object;
    if (!needs_reply(self)) return NULL;
    if (n_args != 2) return PyErr_SetString(PyExc_TypeError, "reply takes a result and a confidence"), NULL;
    if (reply_objects(self->image, self->session, args[0], args[1]) < 0) return NULL;
    Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

static PyObject *session_no_reply(PyObject *object, PyObject *unused)
{
    Session *self = (Session *)object;
    (void)unused;
    if (!needs_reply(self)) return NULL;
    hc_no_reply(self->session);
    Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

static PyObject *session_resend(PyObject *object, PyObject *unused)
{
    Session *self = (Session *)object;
    (void)unused;
    if (!needs_reply(self)) return NULL;
    return PyBool_FromLong(hc_resend(self->session));
}

static PyObject *session_elapsed(PyObject *object, PyObject *amount)
{
    Session *self = (Session *)object;
    int overflow = 1;
    long long value = Py_TYPE(amount) == &PyLong_Type ? PyLong_AsLongLongAndOverflow(amount, &overflow) : -1;
    if (overflow || hc_elapsed(self->session, value) < 0)
        return PyErr_Format(self->image->error,
                            "%R was reported as spent; report 0 to 2^62 micro-units, before the decision", amount);
    Py_RETURN_NONE;
}

static PyObject *session_afford(PyObject *object, PyObject *left)
{
    int overflow;
    int64_t amount = left == Py_None ? HC_NO_BUDGET : to_i64(left, &overflow);
    if (PyErr_Occurred()) return NULL;
    hc_afford(((Session *)object)->session, amount < 0 ? 0 : amount);
    Py_RETURN_NONE;
}

static PyObject *session_spent(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(((Session *)object)->session->spent);
}

static PyObject *session_node(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(hc_node(((Session *)object)->session));
}

static PyObject *session_scores(PyObject *object, PyObject *args)
{
    Session *self = (Session *)object;
    int scorer, start, stop, is_ok;
    int64_t stack[64], *scores;
    PyObject *list = NULL;
    if (!PyArg_ParseTuple(args, "iii:scores", &scorer, &start, &stop)) return NULL;
    if (stop <= start) return PyErr_SetString(self->image->error, "a slice without scores"), NULL;
    if (start < 0) return PyErr_SetString(self->image->error, "a slice of scores that the program does not have"), NULL;
    scores = stop - start > 64 ? PyMem_Calloc((size_t)(stop - start), sizeof *scores) : stack;
    if (scores == NULL) return PyErr_NoMemory();
    is_ok = hc_scores(self->session, scorer, start, stop - start, scores) == 0;
    if (!is_ok) PyErr_SetString(self->image->error, "a slice of scores that the program does not have");
    else list = PyList_New(stop - start);
    for (int k = 0; list != NULL && k < stop - start; k++) PyList_SetItem(list, k, PyLong_FromLongLong(scores[k]));
    if (scores != stack) PyMem_Free(scores);
    return list;
}

static PyObject *session_fork(PyObject *object, PyObject *unused)
{
    Session *self = (Session *)object, *copy;
    (void)unused;
    copy = (Session *)PyType_GenericAlloc((PyTypeObject *)self->image->session_type, 0);
    if (copy == NULL) return NULL;
    Py_INCREF((PyObject *)self->image);
    copy->image = self->image;
    Py_XINCREF(self->action);
    copy->action = self->action;
    copy->kind = self->kind;
    copy->session = PyMem_Malloc(self->image->session_bytes);
    if (copy->session == NULL) {
        Py_DECREF((PyObject *)copy);
        return PyErr_NoMemory();
    }
    memcpy(copy->session, self->session, self->image->session_bytes);
    return (PyObject *)copy;
}

static PyMethodDef session_methods[] = {
    {"next_action", session_next_action, METH_NOARGS, NULL},
    {"feed", (PyCFunction)(void (*)(void))session_feed, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"reply", (PyCFunction)(void (*)(void))session_reply, METH_FASTCALL, NULL},
    {"no_reply", session_no_reply, METH_NOARGS, NULL},
    {"resend", session_resend, METH_NOARGS, NULL},
    {"elapsed", session_elapsed, METH_O, NULL},
    {"afford", session_afford, METH_O, NULL},
    {"spent", session_spent, METH_NOARGS, NULL},
    {"node", session_node, METH_NOARGS, NULL},
    {"scores", session_scores, METH_VARARGS, NULL},
    {"fork", session_fork, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot session_slots[] = {{Py_tp_dealloc, session_free}, {Py_tp_methods, session_methods}, {0, NULL}};
static PyType_Spec session_spec = {"hardcase_edge._kernel.Session", sizeof(Session), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, session_slots};

PyObject *make_session_type(void) { return PyType_FromSpec(&session_spec); }
