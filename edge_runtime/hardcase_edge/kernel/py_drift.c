/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of drift/arithmetic.py, in C: the same operations on doubles in the same order, so the same bits. */
#include "py_run.h"

#include <float.h>
#include <math.h>

#if FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD < 0
#error "sums are not rounded to doubles here (x87), so they would not be the bits of Python; use -msse2 -mfpmath=sse"
#endif

enum { MOST_MISS = 10, LATELY = 8, STAKES = 5, MOST_ROWS = 1 << 20 };

/* A number as a double, -1 with an exception if it is none. No code in Python runs, which could change the lists here. */
static double number_of(PyObject *x)
{
    if (x == NULL) return -1;
    if (PyFloat_Check(x) || PyLong_CheckExact(x) || PyBool_Check(x)) return PyFloat_AsDouble(x);
    return PyErr_SetString(PyExc_TypeError, "a number is a float or an int"), -1;
}

/* Reading k of values as a float, NaN for None; a new reference. */
static PyObject *as_float(PyObject *values, Py_ssize_t k)
{
    PyObject *reading = PySequence_GetItem(values, k);
    double x = NAN;
    if (reading == NULL || PyFloat_CheckExact(reading)) return reading;
    if (reading != Py_None) x = PyFloat_AsDouble(reading);
    Py_DECREF(reading);
    return x == -1 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(x);
}

/* Fill a row of some columns; -1 with an exception if that fails. */
static int put_row(PyObject *columns, Py_ssize_t i, PyObject *row, PyObject *sensor, Py_ssize_t n)
{
    PyObject *values;
    int is_whole = 1;
    if (row == NULL || !PyDict_Check(row)) return PyErr_SetString(PyExc_TypeError, "a row is a dict"), -1;
    values = PyDict_GetItemWithError(row, sensor);
    if (values == NULL && PyErr_Occurred()) return -1;
    if (values == Py_None) values = NULL;
    Py_XINCREF(values);
    for (Py_ssize_t k = 0; is_whole && k < n; k++) {
        PyObject *x = values == NULL ? PyFloat_FromDouble(NAN) : as_float(values, k);
        is_whole = x != NULL && PyList_SetItem(PyList_GetItem(columns, k), i, x) == 0;
    }
    Py_XDECREF(values);
    return is_whole ? 0 : -1;
}

/* columns(rows, sensor, n): the n readings of a sensor in each row, NaN for missing. */
static PyObject *drift_columns(PyObject *module, PyObject *args)
{
    PyObject *rows, *sensor, *columns;
    Py_ssize_t n, n_rows;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!On:columns", &PyList_Type, &rows, &sensor, &n)) return NULL;
    if (n < 0 || n > MOST_ROWS) return PyErr_SetString(PyExc_ValueError, "columns takes 0 to 2^20 columns"), NULL;
    n_rows = PyList_Size(rows);
    columns = PyList_New(n);
    for (Py_ssize_t k = 0; columns != NULL && k < n; k++) {
        PyObject *column = PyList_New(n_rows);
        if (column == NULL || PyList_SetItem(columns, k, column) < 0) Py_CLEAR(columns);
    }
    for (Py_ssize_t i = 0; columns != NULL && i < n_rows; i++)
        if (put_row(columns, i, PyList_GetItem(rows, i), sensor, n) < 0) Py_CLEAR(columns);
    return columns;
}

/* Doubles of a list of n; -1 with an exception if it is not one. */
static int read_list(double *out, PyObject *list, Py_ssize_t n)
{
    if (!PyList_Check(list) || PyList_Size(list) != n)
        return PyErr_SetString(PyExc_ValueError, "columns are lists of one length"), -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *x = PyList_GetItem(list, i);
        if (x == NULL || !PyFloat_Check(x)) return PyErr_SetString(PyExc_TypeError, "a column is of floats"), -1;
        out[i] = PyFloat_AsDouble(x);
    }
    return 0;
}

/* expected = bias + the sum of weight * reading; NaN where a reading is missing, the sensor's own, too. */
static int expect(double *expected, double *own, double *other, PyObject *expectation, Py_ssize_t n, double *limit,
                  double *clearly, double *before)
{
    PyObject *column, *terms;
    double bias, weight;
    if (!PyTuple_Check(expectation)) return PyErr_SetString(PyExc_TypeError, "an expectation is a tuple"), -1;
    if (!PyArg_ParseTuple(expectation, "OdO!ddd", &column, &bias, &PyTuple_Type, &terms, limit, clearly, before) ||
        read_list(own, column, n) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) expected[i] = isnan(own[i]) ? NAN : bias;
    for (Py_ssize_t t = 0; t < PyTuple_Size(terms); t++) {
        PyObject *term = PyTuple_GetItem(terms, t);
        if (!PyTuple_Check(term)) return PyErr_SetString(PyExc_TypeError, "a term is a tuple"), -1;
        if (!PyArg_ParseTuple(term, "Od", &column, &weight) || read_list(other, column, n) < 0) return -1;
        for (Py_ssize_t i = 0; i < n; i++) expected[i] += weight * other[i];
    }
    return 0;
}

static PyObject *floats_of(const double *values, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *x = PyFloat_FromDouble(values[i]);
        if (x == NULL || PyList_SetItem(list, i, x) < 0) Py_CLEAR(list);
    }
    return list;
}

/* Whether a worst miss lies beyond its limit: 1 or 0, -1 where none is known. */
static PyObject *beyond_of(double *worst, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) worst[i] = worst[i] >= 0 ? worst[i] > 1 : -1;
    return floats_of(worst, n);
}

/* Whether readings that should have moved are those before: 1 or 0, -1 where they need not have. */
static PyObject *repeats_of(double *moved, PyObject *readings, Py_ssize_t n)
{
    if (PySequence_Size(readings) <= 0) return PyErr_Occurred() ? NULL : PyList_New(0);
    if (!PyList_Check(readings)) return PyErr_SetString(PyExc_TypeError, "readings are a list"), NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *a = PyList_GetItem(readings, i), *b = a == NULL ? NULL : PyList_GetItem(readings, i + 1);
        int is_same = -1;
        if (b == NULL) return NULL;
        if (moved[i] != 0) {
            Py_INCREF(a), Py_INCREF(b);
            is_same = PyObject_RichCompareBool(a, b, Py_EQ);
            Py_DECREF(a), Py_DECREF(b);
            if (is_same < 0) return NULL;
        }
        moved[i] = is_same;
    }
    return floats_of(moved, n);
}

/* judged(average, n, readings, expectations) */
static PyObject *drift_judged(PyObject *module, PyObject *args)
{
    PyObject *readings, *expectations, *made = NULL;
    Py_ssize_t n, n_expectations;
    double average, *worst, *moved, *expected, *own, *other, *last;
    (void)module;
    if (!PyArg_ParseTuple(args, "dnOO!:judged", &average, &n, &readings, &PyList_Type, &expectations)) return NULL;
    n_expectations = PyList_Size(expectations);
    if (n < 1 || n > MOST_ROWS) return PyErr_SetString(PyExc_ValueError, "judged takes 1 to 2^20 rows"), NULL;
    worst = PyMem_Calloc((size_t)(5 * n + n_expectations), sizeof *worst);
    if (worst == NULL) return PyErr_NoMemory();
    moved = worst + n, expected = moved + n, own = expected + n, other = own + n, last = other + n;
    for (Py_ssize_t i = 0; i < n; i++) worst[i] = -1;
    for (Py_ssize_t p = 0; p < n_expectations; p++) {
        double limit, clearly, before;
        PyObject *expectation = PyList_GetItem(expectations, p);
        int status;
        if (expectation == NULL) goto done;
        Py_INCREF(expectation); /* what makes a double of an odd object may change the list */
        status = expect(expected, own, other, expectation, n, &limit, &clearly, &before);
        Py_DECREF(expectation);
        if (status < 0) goto done;
        for (Py_ssize_t i = 0; i < n; i++) {
            double miss = fabs(own[i] - expected[i]) / limit;
            if (miss > worst[i]) worst[i] = miss;
            if (fabs(expected[i] - before) > clearly) moved[i] = 1;
            before = expected[i];
        }
        last[p] = before;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (worst[i] >= 0) average += ((worst[i] < MOST_MISS ? worst[i] : MOST_MISS) - average) / LATELY;
    made = Py_BuildValue("NNNd", beyond_of(worst, n), repeats_of(moved, readings, n), floats_of(last, n_expectations), average);
done:
    PyMem_Free(worst);
    return made;
}

/* below(values, edges): how many of the values lie below each edge. */
static PyObject *drift_below(PyObject *module, PyObject *args)
{
    PyObject *values, *edges, *counts;
    Py_ssize_t n;
    double *all;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!:below", &PyList_Type, &values, &PyTuple_Type, &edges)) return NULL;
    n = PyList_Size(values);
    if (n > MOST_ROWS) return PyErr_SetString(PyExc_ValueError, "below takes at most 2^20 values"), NULL;
    all = PyMem_Malloc((size_t)n * sizeof *all + 1);
    if (all == NULL) return PyErr_NoMemory();
    counts = read_list(all, values, n) < 0 ? NULL : PyList_New(PyTuple_Size(edges));
    for (Py_ssize_t e = 0; counts != NULL && e < PyTuple_Size(edges); e++) {
        double edge = number_of(PyTuple_GetItem(edges, e));
        Py_ssize_t count = 0;
        PyObject *made;
        for (Py_ssize_t i = 0; i < n; i++) count += all[i] < edge;
        made = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(count);
        if (made == NULL || PyList_SetItem(counts, e, made) < 0) Py_CLEAR(counts);
    }
    PyMem_Free(all);
    return counts;
}

/* bet(purse, since, values, marks, lefts, bound, shares, needed): as base/change.py has it. No logarithm is taken here: not every
 * C library has the one that Python has. */
static PyObject *drift_bet(PyObject *module, PyObject *args)
{
    PyObject *purse, *since, *values, *marks, *lefts, *shares;
    double p[2 + STAKES], f[1 + STAKES], bound, needed;
    Py_ssize_t taken = 0, at = -1, n;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OO!O!O!dO!d:bet", &PyList_Type, &purse, &since, &PyList_Type, &values, &PyList_Type,
                          &marks, &PyList_Type, &lefts, &bound, &PyList_Type, &shares, &needed) ||
        read_list(p, purse, 2 + STAKES) < 0 || read_list(f, shares, 1 + STAKES) < 0)
        return NULL;
    n = PyList_Size(values);
    if (PyList_Size(marks) != n || PyList_Size(lefts) != n)
        return PyErr_SetString(PyExc_ValueError, "each value has a mark, and what is left of the purse"), NULL;
    for (Py_ssize_t i = 0; i < n && at < 0; i++) {
        double value = number_of(PyList_GetItem(values, i)), before = p[0], sum = 0;
        if (value < 0) {
            if (PyErr_Occurred()) return NULL;
            continue;
        }
        p[0] = number_of(PyList_GetItem(lefts, taken++));
        if (p[0] < 0 && PyErr_Occurred()) return NULL;
        if (p[1] <= 1) p[1] = 1, since = PyList_GetItem(marks, i);
        p[1] *= 1 + f[0] * (value - bound) / bound;
        for (int k = 0; k < STAKES; k++) {
            p[2 + k] = (p[2 + k] + (before - p[0])) * (1 + f[1 + k] * (value - bound) / bound);
            sum += p[2 + k];
        }
        if (value != 0 && p[0] + sum / STAKES >= needed) at = i;
    }
    return Py_BuildValue("nOnN", taken, since, at, floats_of(p, 2 + STAKES));
}

static PyMethodDef drift_functions[] = {
    {"columns", drift_columns, METH_VARARGS, NULL},
    {"judged", drift_judged, METH_VARARGS, NULL},
    {"below", drift_below, METH_VARARGS, NULL},
    {"bet", drift_bet, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_drift(PyObject *module) { return PyModule_AddFunctions(module, drift_functions); }
