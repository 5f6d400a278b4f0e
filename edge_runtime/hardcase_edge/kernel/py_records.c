/* SPDX-License-Identifier: Apache-2.0 */
/* The records of hardcase_edge.session.session, made of a session in C: what it needs, what it has decided. */
#include "py_module.h"

PyObject *name_sensors;
static PyObject *name_readings, *names_decision[8];

int add_records(void)
{
    static const char *const fields[8] = {"result", "confidence", "route",  "cost",
                                          "sensors", "trace",      "failed", "unpaid"};
    name_sensors = PyUnicode_InternFromString("sensors");
    name_readings = PyUnicode_InternFromString("readings");
    for (int k = 0; k < 8; k++) names_decision[k] = PyUnicode_InternFromString(fields[k]);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *instance(PyObject *type, PyObject **names, PyObject **values, int n)
{
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)type, 0);
    for (int k = 0; k < n; k++) {
        if (values[k] == NULL || (made != NULL && PyObject_GenericSetAttr(made, names[k], values[k]) < 0))
            Py_CLEAR(made);
        Py_XDECREF(values[k]);
    }
    return made;
}

PyObject *tuple_of(const Py_ssize_t n, int (*each)(const hc_session *, int), const hc_session *s)
{
    PyObject *made = PyTuple_New(n);
    for (Py_ssize_t k = 0; made != NULL && k < n; k++) PyTuple_SetItem(made, k, PyLong_FromLong(each(s, (int)k)));
    return made;
}

PyObject *sensors_that(int (*is_so)(const hc_session *, int), const Image *image, const hc_session *s)
{
    Py_ssize_t n = 0;
    PyObject *made;
    for (Py_ssize_t k = 0; k < image->n_sensors; k++) n += is_so(s, (int)k);
    made = PyTuple_New(n);
    for (Py_ssize_t k = image->n_sensors - 1; made != NULL && n > 0 && k >= 0; k--)
        if (is_so(s, (int)k)) PyTuple_SetItem(made, --n, PyLong_FromSsize_t(k));
    return made;
}

PyObject *make_decision(const Image *image, const hc_session *s)
{
    PyObject *route = PyTuple_GetItem(image->route_names, s->route);
    PyObject *values[8] = {PyLong_FromLongLong(s->result), PyLong_FromLong(s->confidence), route,
                           PyLong_FromLongLong(s->spent - s->saved), sensors_that(hc_was_bought, image, s),
                           tuple_of(s->steps, hc_visited, s), sensors_that(hc_has_failed, image, s),
                           sensors_that(hc_was_unpaid, image, s)};
    Py_XINCREF(route);
    return instance(image->decision, names_decision, values, 8);
}

PyObject *make_need_sensors(const Image *image, const hc_session *s)
{
    Py_ssize_t n = 0;
    PyObject *made;
    for (int at = 0; hc_wanted_next(s, &at) >= 0;) n++;
    made = PyTuple_New(n);
    n = 0;
    for (int at = 0, sensor; made != NULL && (sensor = hc_wanted_next(s, &at)) >= 0;)
        PyTuple_SetItem(made, n++, PyLong_FromLong(sensor));
    return instance(image->need_sensors, &name_sensors, &made, 1);
}

PyObject *make_need_reply(const Image *image, const hc_session *s)
{
    PyObject *made = request_readings(image, s);
    return instance(image->need_reply, &name_readings, &made, 1);
}

PyObject *asked_sensors(PyObject *action, int is_asked, PyObject *error)
{
    if (action != NULL && is_asked) return PyObject_GetAttr(action, name_sensors);
    return PyErr_SetString(error, "readings were fed, but the session did not ask for any; call next_action first"), NULL;
}

PyObject *wrong_readings(const char *of_what, PyObject *readings, PyObject *asked, PyObject *error)
{
    PyObject *a = PySequence_List(readings), *b = PySequence_List(asked);
    if (a != NULL && b != NULL && PyList_Sort(b) == 0) {
        if (PyList_Sort(a) < 0) PyErr_Clear();
        PyErr_Format(error, "readings of %s%R were fed, %R were asked for", of_what, a, b);
    }
    Py_XDECREF(a), Py_XDECREF(b);
    return NULL;
}
