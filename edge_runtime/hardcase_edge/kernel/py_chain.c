/* SPDX-License-Identifier: Apache-2.0 */
/* Chain(labels, numbers): a chain as joint/chain.py has it. ``numbers`` are the int64 of transitions, start and stop. */
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include "py_chain.h"

#include <string.h>

#include "chain.h"

enum { MOST_LABELS = 32767, MOST_PARTS = 1024 };

typedef struct {
    PyObject_HEAD
    hc_chain chain;
    int64_t *numbers;
} Chain;

static PyObject *chain_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Chain *self;
    char *data;
    Py_ssize_t n_bytes;
    int labels;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_SetString(PyExc_TypeError, "Chain takes no keywords"), NULL;
    if (!PyArg_ParseTuple(args, "iy#:Chain", &labels, &data, &n_bytes)) return NULL;
    if (labels < 2 || labels > MOST_LABELS || n_bytes != 8 * (Py_ssize_t)labels * (labels + 2))
        return PyErr_SetString(PyExc_ValueError, "a chain of K labels has K * (K + 2) numbers"), NULL;
    self = (Chain *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->numbers = PyMem_Malloc((size_t)n_bytes);
    if (self->numbers == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memcpy(self->numbers, data, (size_t)n_bytes);
    self->chain.labels = labels;
    self->chain.transitions = self->numbers;
    self->chain.start = self->numbers + (size_t)labels * (size_t)labels;
    self->chain.stop = self->chain.start + labels;
    return (PyObject *)self;
}

static void chain_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(((Chain *)object)->numbers);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int wrong(const char *what) { return PyErr_SetString(PyExc_ValueError, what), -1; }

/* An int and nothing that becomes one: no code of a caller runs while borrowed references are at work. */
static int read_int(PyObject *given, long long *value)
{
    if (!PyLong_Check(given)) return PyErr_SetString(PyExc_TypeError, "parts, labels and scores are ints"), -1;
    *value = PyLong_AsLongLong(given);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Label of each fixed part, from a dict. */
static int read_fixed(int32_t *fixed, PyObject *given, Py_ssize_t parts, int32_t labels)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t t = 0; t < parts; t++) fixed[t] = HC_NOT_FIXED;
    while (PyDict_Next(given, &at, &key, &value)) {
        long long t, y;
        if (read_int(key, &t) < 0 || read_int(value, &y) < 0) return -1;
        if (t < 0 || t >= parts || y < 0 || y >= labels) return wrong("a fixed part or label that is not there");
        fixed[t] = (int32_t)y;
    }
    return 0;
}

static int read_scores(int64_t *scores, const int32_t *fixed, PyObject *rows, Py_ssize_t parts, int32_t labels)
{
    for (Py_ssize_t t = 0; t < parts; t++) {
        PyObject *row = PyList_GetItem(rows, t);
        if (row == NULL) return -1;
        if (fixed[t] != HC_NOT_FIXED) continue;
        if (!PyList_Check(row) || PyList_Size(row) != labels) return wrong("a row of scores is not a list of K");
        for (int32_t y = 0; y < labels; y++) {
            long long value;
            if (read_int(PyList_GetItem(row, y), &value) < 0) return -1;
            scores[(size_t)labels * (size_t)t + (size_t)y] = value;
        }
    }
    return 0;
}

static PyObject *list_of(const int32_t *values, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t k = 0; list != NULL && k < n; k++) PyList_SetItem(list, k, PyLong_FromLong(values[k]));
    return list;
}

/* decode(scores, fixed, with_gaps): labels and gaps, as ChainDecoder.decode. */
static PyObject *chain_decode(PyObject *object, PyObject *args)
{
    const hc_chain *chain = &((Chain *)object)->chain;
    PyObject *rows, *given, *labels, *gaps;
    int with_gaps = 1;
    Py_ssize_t parts;
    size_t k = (size_t)chain->labels;
    int64_t *scores;
    int32_t *whole;
    if (!PyArg_ParseTuple(args, "O!O!|p:decode", &PyList_Type, &rows, &PyDict_Type, &given, &with_gaps)) return NULL;
    parts = PyList_Size(rows);
    if (parts < 1 || parts > MOST_PARTS) return wrong("an item has 1 to 1024 parts"), NULL;
    scores = PyMem_Malloc(8 * (k * (size_t)parts + HC_CHAIN_WORK(parts, k)) + 12 * (size_t)parts);
    if (scores == NULL) return PyErr_NoMemory();
    whole = (int32_t *)(scores + k * (size_t)parts + HC_CHAIN_WORK(parts, k)); /* fixed, labels, gaps */
    if (read_fixed(whole, given, parts, chain->labels) < 0 || read_scores(scores, whole, rows, parts, chain->labels) < 0) {
        PyMem_Free(scores);
        return NULL;
    }
    hc_decode(chain, scores, whole, (int32_t)parts, scores + k * (size_t)parts, whole + parts,
              with_gaps ? whole + 2 * parts : NULL);
    labels = list_of(whole + parts, parts);
    gaps = list_of(whole + 2 * parts, with_gaps ? parts : 0);
    PyMem_Free(scores);
    return labels == NULL || gaps == NULL ? (Py_XDECREF(labels), Py_XDECREF(gaps), NULL) : Py_BuildValue("(NN)", labels, gaps);
}

static PyMethodDef chain_methods[] = {{"decode", chain_decode, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot chain_slots[] = {
    {Py_tp_new, chain_new}, {Py_tp_dealloc, chain_free}, {Py_tp_methods, chain_methods}, {0, NULL}};
static PyType_Spec chain_spec = {"hardcase_edge._kernel.Chain", sizeof(Chain), 0, Py_TPFLAGS_DEFAULT, chain_slots};

int add_chain(PyObject *module)
{
    PyObject *chain = PyType_FromSpec(&chain_spec);
    int added = chain == NULL ? -1 : PyModule_AddObjectRef(module, "Chain", chain);
    Py_XDECREF(chain);
    return added;
}
