/* SPDX-License-Identifier: Apache-2.0 */
/* The keywords of a session, and how one starts with them. */
#include "py_module.h"

#include <string.h>

int read_options(options *o, PyObject *const *values, PyObject *names, int has_reply)
{
    Py_ssize_t n = names == NULL ? 0 : PyTuple_Size(names);
    memset(o, 0, sizeof *o);
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *name = PyTuple_GetItem(names, k), *value = values[k];
        if (PyUnicode_CompareWithASCIIString(name, "budget") == 0) o->budget = value;
        else if (PyUnicode_CompareWithASCIIString(name, "item_size") == 0) o->item_size = value;
        else if (PyUnicode_CompareWithASCIIString(name, "dead") == 0) o->dead = value;
        else if (PyUnicode_CompareWithASCIIString(name, "cloud") == 0) o->cloud = value;
        else if (has_reply && PyUnicode_CompareWithASCIIString(name, "reply") == 0) o->reply = value;
        else return PyErr_Format(PyExc_TypeError, "a session has no %U", name), -1;
    }
    return 0;
}

int64_t to_i64(PyObject *value, int *overflow)
{
    PyObject *whole = PyNumber_Index(value);
    int64_t v;
    *overflow = 0;
    if (whole == NULL) return -1;
    v = PyLong_AsLongLongAndOverflow(whole, overflow);
    Py_DECREF(whole);
    if (*overflow) v = *overflow > 0 ? INT64_MAX : INT64_MIN;
    return v;
}

int reply_objects(const Image *image, hc_session *s, PyObject *result, PyObject *confidence)
{
    int beyond, too;
    int64_t said = to_i64(result, &beyond), sure;
    if (PyErr_Occurred()) return -1;
    sure = to_i64(confidence, &too);
    if (PyErr_Occurred()) return -1;
    if (!beyond && sure >= 0 && sure <= BASIS_POINTS && hc_reply(s, said, (int)sure) == 0) return 0;
    return PyErr_Format(image->error, "a reply of class %S, confidence %S; there are %S classes", result, confidence,
                        image->n_classes), -1;
}

int start_session(hc_session *s, const Image *image, const options *o)
{
    int64_t budget = HC_NO_BUDGET, size = 1;
    int overflow, status, cloud = HC_CLOUD;
    if (o->budget != NULL && o->budget != Py_None) budget = to_i64(o->budget, &overflow);
    if (PyErr_Occurred()) return -1; /* no code in Python may run with an exception set */
    if (o->item_size != NULL) size = to_i64(o->item_size, &overflow);
    if (PyErr_Occurred()) return -1;
    if (o->cloud != NULL) cloud = PyObject_IsTrue(o->cloud);
    if (PyErr_Occurred()) return -1;
    status = HC_ERROR_ARGUMENT;
    if (size >= 1 && size <= INT32_MAX) status = hc_start(s, image->bytes, budget, (int32_t)size, cloud);
    if (status == HC_ERROR_BUDGET) {
        PyErr_Format(image->error, "a budget of %S micro-units is less than each decision costs at its start, %lld; "
                     "raise it", o->budget, (long long)hc_start_cost(image->bytes));
        return -1;
    }
    if (status < 0) {
        PyErr_Format(image->error, "item size %S is outside 1 to %lu", o->item_size,
                     (unsigned long)hc_largest_item(image->bytes));
        return -1;
    }
    if (o->dead != NULL) {
        PyObject *each = PyObject_GetIter(o->dead), *one;
        if (each == NULL) return -1;
        while (!PyErr_Occurred() && (one = PyIter_Next(each)) != NULL) {
            int64_t sensor = to_i64(one, &overflow);
            Py_DECREF(one);
            if (sensor >= 0 && sensor <= INT32_MAX) hc_dead(s, (int)sensor); /* one that does not exist is never met */
        }
        Py_DECREF(each);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}
