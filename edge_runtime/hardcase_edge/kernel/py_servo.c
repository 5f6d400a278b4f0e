/* SPDX-License-Identifier: Apache-2.0 */
/* Bucket(rate, burst, steps, begin): a running budget as servo/bucket.py has it; Table(image, nodes, thresholds): the
 * thresholds that move with its price. Both are the servo of microcontrollers, hardcase_servo.c. */
#include "py_run.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "hardcase_servo.h"

#define MOST_AMOUNT ((int64_t)1 << 50)
#define MOST_THRESHOLD ((int64_t)1 << 61)
enum { MOST_STEPS = 1 << 22, MOST_BASE = 512 * 600000, MOST_MOVED = 64, MOST_LEVELS = 64 };

static PyObject *type_of_images;

/* ------------------------------------------------------------ buckets */

typedef struct {
    PyObject_HEAD
    hc_bucket bucket;
} Bucket;

static int64_t within(int64_t v, int64_t most) { return v < 0 ? 0 : v > most ? most : v; }

static PyObject *bucket_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    long long rate, burst;
    int steps, begin;
    Bucket *self;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_SetString(PyExc_TypeError, "Bucket takes no keywords"), NULL;
    if (!PyArg_ParseTuple(args, "LLii:Bucket", &rate, &burst, &steps, &begin)) return NULL;
    if (rate < 0 || rate > MOST_AMOUNT || burst < 1 || burst > MOST_AMOUNT || steps < 1 || steps > MOST_STEPS ||
        begin < 0 || begin > steps)
        return PyErr_SetString(PyExc_ValueError, "a bucket with numbers outside their ranges"), NULL;
    self = (Bucket *)PyType_GenericAlloc(type, 0);
    if (self != NULL) hc_bucket_open(&self->bucket, rate, burst, steps, begin);
    return (PyObject *)self;
}

static void plain_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *bucket_passed(PyObject *object, PyObject *amount)
{
    int overflow;
    int64_t ms = to_i64(amount, &overflow);
    if (PyErr_Occurred()) return NULL;
    hc_passed(&((Bucket *)object)->bucket, (uint32_t)within(ms, UINT32_MAX));
    return Py_NewRef(Py_None);
}

static PyObject *bucket_spent(PyObject *object, PyObject *amount)
{
    int overflow;
    int64_t cost = to_i64(amount, &overflow);
    if (PyErr_Occurred()) return NULL;
    hc_spent(&((Bucket *)object)->bucket, cost);
    return Py_NewRef(Py_None);
}

static PyObject *bucket_resume(PyObject *object, PyObject *args)
{
    hc_bucket *bucket = &((Bucket *)object)->bucket;
    PyObject *left, *base;
    int64_t kept, position;
    int overflow;
    if (!PyArg_ParseTuple(args, "OO:resume", &left, &base)) return NULL;
    kept = to_i64(left, &overflow);
    if (PyErr_Occurred()) return NULL;
    position = to_i64(base, &overflow);
    if (PyErr_Occurred()) return NULL;
    bucket->left = within(kept, 2 * bucket->burst);
    bucket->base = (int32_t)within(position, MOST_BASE);
    return Py_NewRef(Py_None);
}

static PyObject *bucket_position(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLong(hc_position(&((Bucket *)object)->bucket));
}

static PyObject *bucket_state(PyObject *object, void *unused)
{
    (void)unused;
    return Py_BuildValue("Li", (long long)((Bucket *)object)->bucket.left, (int)((Bucket *)object)->bucket.base);
}

static PyObject *bucket_rate(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(((Bucket *)object)->bucket.rate);
}

static int bucket_set_rate(PyObject *object, PyObject *value, void *unused)
{
    int overflow;
    int64_t rate = value == NULL ? -1 : to_i64(value, &overflow);
    (void)unused;
    if (PyErr_Occurred()) return -1;
    if (rate < 0 || rate > MOST_AMOUNT) return PyErr_SetString(PyExc_ValueError, "a rate is 0 to 2^50"), -1;
    ((Bucket *)object)->bucket.rate = rate;
    return 0;
}

#define FIELD(name) (Py_ssize_t)(offsetof(Bucket, bucket) + offsetof(hc_bucket, name))
static PyMemberDef bucket_members[] = {{"left", T_LONGLONG, FIELD(left), READONLY, NULL},
                                       {"burst", T_LONGLONG, FIELD(burst), READONLY, NULL},
                                       {"steps", T_INT, FIELD(steps), READONLY, NULL},
                                       {NULL, 0, 0, 0, NULL}};
static PyGetSetDef bucket_values[] = {{"position", bucket_position, NULL, NULL, NULL},
                                      {"state", bucket_state, NULL, NULL, NULL},
                                      {"rate", bucket_rate, bucket_set_rate, NULL, NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef bucket_methods[] = {{"passed", bucket_passed, METH_O, NULL},
                                       {"spent", bucket_spent, METH_O, NULL},
                                       {"resume", bucket_resume, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyType_Slot bucket_slots[] = {{Py_tp_new, bucket_new},         {Py_tp_dealloc, plain_free},
                                     {Py_tp_methods, bucket_methods}, {Py_tp_members, bucket_members},
                                     {Py_tp_getset, bucket_values},   {0, NULL}};
static PyType_Spec bucket_spec = {"hardcase_edge._kernel.Bucket", sizeof(Bucket), 0, Py_TPFLAGS_DEFAULT, bucket_slots};

/* ------------------------------------------------------------ tables */

typedef struct {
    PyObject_HEAD
    Image *image;
    hc_prices prices;
    int64_t *thresholds; /* level by level */
    uint32_t nodes[MOST_MOVED];
} Table;

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *image;
    char *nodes, *thresholds;
    Py_ssize_t n_nodes, n_thresholds, levels;
    Table *self;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_SetString(PyExc_TypeError, "Table takes no keywords"), NULL;
    if (!PyArg_ParseTuple(args, "O!y#y#:Table", type_of_images, &image, &nodes, &n_nodes, &thresholds, &n_thresholds))
        return NULL;
    levels = n_nodes == 0 ? 0 : n_thresholds / (2 * n_nodes); /* of 8 bytes for each 4 of a node */
    if (n_nodes % 4 != 0 || n_nodes > 4 * MOST_MOVED || levels < 2 || levels > MOST_LEVELS ||
        n_thresholds != 2 * n_nodes * levels)
        return PyErr_SetString(PyExc_ValueError, "a table has thresholds of 1 to 64 nodes at 2 to 64 levels"), NULL;
    self = (Table *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->image = (Image *)Py_NewRef(image);
    self->thresholds = PyMem_Malloc((size_t)n_thresholds);
    if (self->thresholds == NULL) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    memcpy(self->thresholds, thresholds, (size_t)n_thresholds);
    for (Py_ssize_t k = 0; k < n_thresholds / 8; k++)
        if (self->thresholds[k] > MOST_THRESHOLD || self->thresholds[k] < -MOST_THRESHOLD) {
            Py_DECREF((PyObject *)self);
            return PyErr_SetString(PyExc_ValueError, "a threshold lies within 2^61"), NULL;
        }
    memcpy(self->nodes, nodes, (size_t)n_nodes);
    self->prices.nodes = self->nodes;
    self->prices.thresholds = self->thresholds;
    self->prices.n_nodes = (int32_t)(n_nodes / 4);
    self->prices.n_levels = (int32_t)levels;
    return (PyObject *)self;
}

static void table_free(PyObject *object)
{
    Py_XDECREF((PyObject *)((Table *)object)->image);
    PyMem_Free(((Table *)object)->thresholds);
    plain_free(object);
}

/* move(position): set the thresholds of all sessions of the image. */
static PyObject *table_move(PyObject *object, PyObject *position)
{
    Table *self = (Table *)object;
    int overflow;
    int64_t at = to_i64(position, &overflow);
    if (PyErr_Occurred()) return NULL;
    if (hc_set_price(self->image->bytes, &self->prices, (int32_t)within(at, HC_LAST(&self->prices))) != 0)
        return PyErr_SetString(PyExc_ValueError, "a node of the table has no threshold"), NULL;
    return Py_NewRef(Py_None);
}

static PyMethodDef table_methods[] = {{"move", table_move, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot table_slots[] = {
    {Py_tp_new, table_new}, {Py_tp_dealloc, table_free}, {Py_tp_methods, table_methods}, {0, NULL}};
static PyType_Spec table_spec = {"hardcase_edge._kernel.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, table_slots};

int add_servo(PyObject *module, PyObject *image_type)
{
    PyObject *bucket = PyType_FromSpec(&bucket_spec), *table = PyType_FromSpec(&table_spec);
    int added = bucket == NULL || table == NULL || PyModule_AddObjectRef(module, "Bucket", bucket) < 0 ||
                        PyModule_AddObjectRef(module, "Table", table) < 0
                    ? -1
                    : 0;
    type_of_images = Py_NewRef(image_type);
    Py_XDECREF(bucket), Py_XDECREF(table);
    return added;
}
