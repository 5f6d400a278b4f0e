/* SPDX-License-Identifier: Apache-2.0 */
/* Readings as Python has them and as the kernel has them.
 *
 * A row of exact floats, ints and None is read here; whatever else a sensor gives goes to Python's own normalise, so
 * that both evaluators take the same things for readings. */
#include "py_module.h"

#include <math.h>
#include <string.h>

static void put(unsigned char *p, int type, double v, int32_t whole)
{
    float f = (float)v;
    if (type == I32) memcpy(p, &whole, 4);
    else if (type == F32) memcpy(p, &f, 4);
    else memcpy(p, &v, 8);
}

static void put_missing(unsigned char *p, int type) { put(p, type, (double)NAN, INT32_MIN); }

/* 1 if it was an exact float, int or None, which is then written; 0 if not, or if an int beyond 2^53 would be rounded
 * twice; no Python code runs. */
static int put_object(unsigned char *p, int type, PyObject *value, PyTypeObject *float_type, PyTypeObject *int_type)
{
    PyTypeObject *found = Py_TYPE(value);
    if (found == float_type) {
        double v = PyFloat_AsDouble(value);
        int is_whole = type != I32 || (v >= -2147483647.0 && v <= 2147483647.0 && v == (double)(int32_t)v);
        if (is_whole) put(p, type, v, type == I32 ? (int32_t)v : 0);
        else put_missing(p, type);
        return 1;
    }
    if (found == int_type) {
        if (type == I32) {
            int overflow;
            long long v = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow || v < -INT32_MAX || v > INT32_MAX) put_missing(p, type);
            else put(p, type, 0, (int32_t)v);
        } else {
            double v = PyLong_AsDouble(value);
            if (v == -1.0 && PyErr_Occurred()) PyErr_Clear(), v = INFINITY;
            if (type == F32 && !(v > -9007199254740992.0 && v < 9007199254740992.0)) return 0; /* it may be rounded */
            put(p, type, v, 0);
        }
        return 1;
    }
    if (value == Py_None) {
        put_missing(p, type);
        return 1;
    }
    return 0;
}

/* Write a sensor's readings, or those of its features in a row, as hc_feed wants them. */
static int put_list(unsigned char *out, const sensor_info *sensor, PyObject *list, int is_tuple, int is_row)
{
    PyTypeObject *float_type = &PyFloat_Type, *int_type = &PyLong_Type;
    Py_ssize_t offset = 0;
    for (Py_ssize_t k = 0; k < sensor->count; k++) {
        Py_ssize_t n = sensor->types[k] == F64 ? 8 : 4, at = is_row ? sensor->features[k] : k;
        PyObject *value = is_tuple ? PyTuple_GetItem(list, at) : PyList_GetItem(list, at);
        offset = (offset + n - 1) & ~(n - 1);
        if (value == NULL || !put_object(out + offset, sensor->types[k], value, float_type, int_type)) return 0;
        offset += n;
    }
    return 1;
}

static PyObject *get_reading(const unsigned char *p, int type)
{
    int32_t whole;
    float single;
    double v;
    if (type == I32) {
        memcpy(&whole, p, 4);
        if (whole == INT32_MIN) Py_RETURN_NONE;
        return PyLong_FromLong(whole);
    }
    if (type == F32) memcpy(&single, p, 4), v = (double)single;
    else memcpy(&v, p, 8);
    if (isnan(v)) Py_RETURN_NONE;
    return PyFloat_FromDouble(v);
}

int feed_object(const Image *image, hc_session *s, int sensor, PyObject *values, int is_row, int64_t cost)
{
    const sensor_info *info = &image->sensors[sensor];
    unsigned char stack[STACK_BYTES], *out = info->bytes > STACK_BYTES ? PyMem_Malloc((size_t)info->bytes) : stack;
    int is_list = Py_TYPE(values) == &PyList_Type, is_tuple = Py_TYPE(values) == &PyTuple_Type, is_read = 0;
    if (out == NULL) return PyErr_NoMemory(), -1;
    if (values != Py_None) {
        Py_ssize_t wanted = is_row ? image->n_features : info->count;
        if (is_list && PyList_Size(values) == wanted) is_read = put_list(out, info, values, 0, is_row);
        else if (is_tuple && PyTuple_Size(values) == wanted) is_read = put_list(out, info, values, 1, is_row);
        if (!is_read) {
            PyObject *held = PyObject_CallFunction(image->normalise, "iOi", sensor, values, is_row);
            if (held == NULL) {
                if (out != stack) PyMem_Free(out);
                return -1;
            }
            is_read = held != Py_None && put_list(out, info, held, 0, 0);
            Py_DECREF(held);
        }
    }
    hc_feed_at(s, sensor, is_read ? out : NULL, cost);
    if (out != stack) PyMem_Free(out);
    return 0;
}

PyObject *request_readings(const Image *image, const hc_session *s)
{
    const unsigned char *p = hc_request(s);
    PyObject *made = PyTuple_New(image->n_uplink);
    for (Py_ssize_t k = 0; made != NULL && k < image->n_uplink; k++) {
        PyTuple_SetItem(made, k, get_reading(p, image->uplink[k]));
        p += image->uplink[k] == F64 ? 8 : 4;
    }
    return made;
}
