/* SPDX-License-Identifier: Apache-2.0 */
/* Items(image, numbers, nodes, settings, tables, records): a joint program; session(parts, ...) makes an ItemSession.
 *
 * numbers   int64 of transitions, start and stop
 * nodes     6 int32 for each node: scorer, start and stop of what it tells the chain, the same of its policy; -1: none
 * settings  labels, the most parts, is it anytime, threshold, the inner sensors, function of an item size to costs
 * tables    bytes of int32: margins and confidences of parts, of items
 * records   NeedParts, NeedReplies, PartDecision, JointDecision, SessionError */
#include "py_items.h"

#include <string.h>

static PyObject *type_of_images;

static int read_table(table *t, const int32_t **at, Py_ssize_t *words_left)
{
    Py_ssize_t n = *words_left > 0 ? **at : -1;
    if (n < 0 || *words_left < 2 * n + 2) return -1;
    t->n_margins = n;
    t->margins = *at + 1;
    t->confidences = *at + 1 + n;
    *at += 2 * n + 2;
    *words_left -= 2 * n + 2;
    return 0;
}

static void *copy_of(const char *data, Py_ssize_t n_bytes)
{
    void *made = PyMem_Malloc((size_t)n_bytes + 8);
    if (made == NULL) PyErr_NoMemory();
    else memcpy(made, data, (size_t)n_bytes);
    return made;
}

static PyObject *items_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Items *self = (Items *)PyType_GenericAlloc(type, 0);
    PyObject *image, *settings, *records;
    const int32_t *at;
    char *numbers, *nodes, *tables, *inner;
    Py_ssize_t n_numbers, n_nodes, n_tables, n_inner;
    int k;
    if (self == NULL) return NULL;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Items takes no keywords");
        goto failed;
    }
    if (!PyArg_ParseTuple(args, "O!y#y#O!y#O!:Items", type_of_images, &image, &numbers, &n_numbers, &nodes, &n_nodes, &PyTuple_Type,
                          &settings, &tables, &n_tables, &PyTuple_Type, &records) ||
        !PyArg_ParseTuple(settings, "iipLy#O", &k, &self->most_parts, &self->is_anytime, &self->threshold, &inner, &n_inner,
                          &self->costs))
        goto failed;
    Py_INCREF(self->costs);
    if (!PyArg_ParseTuple(records, "OOOOO", &self->need_parts, &self->need_replies, &self->part_decision,
                          &self->joint_decision, &self->error)) {
        self->need_parts = self->need_replies = self->part_decision = self->joint_decision = self->error = NULL;
        goto failed;
    }
    Py_INCREF(self->need_parts), Py_INCREF(self->need_replies), Py_INCREF(self->part_decision);
    Py_INCREF(self->joint_decision), Py_INCREF(self->error);
    self->session_type = PyObject_GetAttrString((PyObject *)type, "Session");
    if (self->session_type == NULL) goto failed;
    Py_INCREF(image);
    self->image = (Image *)image;
    self->numbers = copy_of(numbers, n_numbers);
    self->nodes = copy_of(nodes, n_nodes);
    self->words = copy_of(tables, n_tables);
    self->is_inner = copy_of(inner, n_inner);
    if (self->numbers == NULL || self->nodes == NULL || self->words == NULL || self->is_inner == NULL) goto failed;
    at = self->words;
    n_tables /= 4;
    if (k < 2 || k > 32767 || self->most_parts < 1 || self->most_parts > 1024 || n_inner != self->image->n_sensors ||
        n_nodes != 4 * NODE * (Py_ssize_t)hc_nodes(self->image->bytes) ||
        n_numbers != 8 * (Py_ssize_t)k * (k + 2) || read_table(&self->of_part, &at, &n_tables) < 0 ||
        read_table(&self->of_item, &at, &n_tables) < 0) {
        PyErr_SetString(PyExc_ValueError, "these numbers are no joint program");
        goto failed;
    }
    for (Py_ssize_t s = 0; s < n_inner; s++)
    {
        const int count = (int)self->image->sensors[s].count;
        if (self->is_inner[s] &&
            (count < FEATURES - 1 || count > FEATURES || self->image->sensors[s].bytes != 4 * count)) {
            PyErr_SetString(PyExc_ValueError, "an inner sensor has other features");
            goto failed;
        }
    }
    self->chain.labels = k;
    self->chain.transitions = self->numbers;
    self->chain.start = self->numbers + (size_t)k * (size_t)k;
    self->chain.stop = self->chain.start + k;
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void items_free(PyObject *object)
{
    Items *self = (Items *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(self->numbers), PyMem_Free(self->nodes), PyMem_Free(self->words), PyMem_Free(self->is_inner);
    Py_XDECREF((PyObject *)self->image), Py_XDECREF(self->costs), Py_XDECREF(self->need_parts);
    Py_XDECREF(self->need_replies), Py_XDECREF(self->part_decision), Py_XDECREF(self->joint_decision);
    Py_XDECREF(self->error), Py_XDECREF(self->session_type);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef items_methods[] = {
    {"session", (PyCFunction)(void (*)(void))items_session, METH_FASTCALL | METH_KEYWORDS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot items_slots[] = {
    {Py_tp_new, items_new}, {Py_tp_dealloc, items_free}, {Py_tp_methods, items_methods}, {0, NULL}};
static PyType_Spec items_spec = {"hardcase_edge._kernel.Items", sizeof(Items), 0, Py_TPFLAGS_DEFAULT, items_slots};

int add_items(PyObject *module, PyObject *image_type)
{
    PyObject *session = make_item_session_type(), *items = PyType_FromSpec(&items_spec);
    int added = -1;
    type_of_images = Py_NewRef(image_type);
    if (session != NULL && items != NULL && add_item_records() == 0 && PyObject_SetAttrString(items, "Session", session) == 0)
        added = PyModule_AddObjectRef(module, "Items", items);
    Py_XDECREF(session), Py_XDECREF(items);
    return added;
}
