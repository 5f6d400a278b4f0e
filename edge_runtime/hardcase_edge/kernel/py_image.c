/* SPDX-License-Identifier: Apache-2.0 */
/* Image: a program's image, checked, with what its sessions need of Python; made by hardcase_edge/kernel/compiled.py. */
#include "py_module.h"

#include <string.h>

static int fill_sensor(sensor_info *sensor, PyObject *types, PyObject *features, Py_ssize_t n_features)
{
    char *data;
    Py_ssize_t count;
    if (PyBytes_AsStringAndSize(types, &data, &count) < 0) return -1;
    sensor->types = PyMem_Malloc((size_t)count + 1);
    sensor->features = PyMem_Calloc((size_t)count + 1, sizeof *sensor->features);
    if (sensor->types == NULL || sensor->features == NULL) return PyErr_NoMemory(), -1;
    memcpy(sensor->types, data, (size_t)count);
    sensor->count = count;
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t n = data[k] == F64 ? 8 : 4;
        PyObject *feature = PySequence_GetItem(features, k);
        long at = feature == NULL ? -1 : PyLong_AsLong(feature);
        Py_XDECREF(feature);
        if (at < 0 || at >= n_features) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a feature that does not exist");
            return -1;
        }
        sensor->features[k] = (int32_t)at;
        sensor->bytes = ((sensor->bytes + n - 1) & ~(n - 1)) + n;
    }
    return 0;
}

/* A buffer can be read as it lies if all readings have one type and sensors name features in order. */
static Py_ssize_t row_bytes(Image *image)
{
    Py_ssize_t next = 0;
    int type = -1;
    for (Py_ssize_t s = 0; s < image->n_sensors; s++)
        for (Py_ssize_t k = 0; k < image->sensors[s].count; k++) {
            if (type < 0) type = image->sensors[s].types[k];
            if (image->sensors[s].types[k] != type || image->sensors[s].features[k] != next++) return 0;
        }
    image->row_format = type == I32 ? 'i' : type == F32 ? 'f' : 'd';
    return next * (type == F64 ? 8 : 4);
}

/* Are these the numbers that a row has? Others, of whatever type, are read one by one, as those of a list. */
static int is_row(const Image *image, const Py_buffer *view)
{
    return image->row_bytes > 0 && view->format != NULL && view->format[0] == image->row_format && !view->format[1];
}

static PyObject *image_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    char *data, *uplink;
    Py_ssize_t n_bytes;
    PyObject *sensors, *names;
    Image *self = NULL;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_SetString(PyExc_TypeError, "Image takes no keywords"), NULL;
    self = (Image *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(args, "y#nO!y#O!:Image", &data, &n_bytes, &self->n_features, &PyTuple_Type, &sensors, &uplink,
                          &self->n_uplink, &PyTuple_Type, &names))
        goto failed;
    if (!PyArg_ParseTuple(names, "OOOOOOO", &self->need_sensors, &self->need_reply, &self->decision, &self->error,
                          &self->normalise, &self->route_names, &self->n_classes))
        goto failed;
    Py_INCREF(self->need_sensors), Py_INCREF(self->need_reply), Py_INCREF(self->decision), Py_INCREF(self->error);
    Py_INCREF(self->normalise), Py_INCREF(self->route_names), Py_INCREF(self->n_classes);
    self->session_type = PyObject_GetAttrString((PyObject *)type, "Session");
    self->bytes = PyMem_Malloc((size_t)n_bytes + 8);
    self->uplink = PyMem_Malloc((size_t)self->n_uplink + 1);
    self->n_sensors = PyTuple_Size(sensors);
    self->sensors = PyMem_Calloc((size_t)self->n_sensors + 1, sizeof *self->sensors);
    if (self->session_type == NULL) goto failed;
    if (!PyTuple_Check(self->route_names) || PyTuple_Size(self->route_names) != 3) {
        PyErr_SetString(PyExc_TypeError, "the names of routes are a tuple of three");
        goto failed;
    }
    if (self->bytes == NULL || self->uplink == NULL || self->sensors == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    memcpy(self->bytes, data, (size_t)n_bytes);
    memcpy(self->uplink, uplink, (size_t)self->n_uplink);
    if (!hc_check(self->bytes, (size_t)n_bytes)) {
        PyErr_SetString(PyExc_ValueError, "these bytes are no image that this kernel runs");
        goto failed;
    }
    self->session_bytes = hc_session_bytes(self->bytes);
    for (Py_ssize_t s = 0; s < self->n_sensors; s++) {
        PyObject *types, *features, *sensor = PyTuple_GetItem(sensors, s);
        if (!PyTuple_Check(sensor)) PyErr_SetString(PyExc_TypeError, "a sensor is a tuple");
        if (PyErr_Occurred() || !PyArg_ParseTuple(sensor, "SO", &types, &features)) goto failed;
        if (fill_sensor(&self->sensors[s], types, features, self->n_features) < 0) goto failed;
        if ((size_t)self->sensors[s].bytes != hc_readings_bytes(self->bytes, (int)s)) {
            PyErr_SetString(PyExc_ValueError, "the image is of another program");
            goto failed;
        }
    }
    if (hc_readings_bytes(self->bytes, (int)self->n_sensors) != 0) {
        PyErr_SetString(PyExc_ValueError, "the image is of another program");
        goto failed;
    }
    self->row_bytes = row_bytes(self);
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void image_free(PyObject *object)
{
    Image *self = (Image *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t s = 0; self->sensors != NULL && s < self->n_sensors; s++) {
        PyMem_Free(self->sensors[s].types);
        PyMem_Free(self->sensors[s].features);
    }
    PyMem_Free(self->sensors);
    PyMem_Free(self->bytes);
    PyMem_Free(self->uplink);
    Py_XDECREF(self->need_sensors), Py_XDECREF(self->need_reply), Py_XDECREF(self->decision), Py_XDECREF(self->error);
    Py_XDECREF(self->normalise), Py_XDECREF(self->route_names), Py_XDECREF(self->n_classes);
    Py_XDECREF(self->session_type);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Set a threshold for all sessions of this image; compiled.py says which nodes may move. */
static PyObject *image_move(PyObject *object, PyObject *args)
{
    long long threshold;
    unsigned int node;
    if (!PyArg_ParseTuple(args, "IL:move", &node, &threshold)) return NULL;
    if (hc_move(((Image *)object)->bytes, node, threshold) != 0)
        return PyErr_SetString(PyExc_ValueError, "this node has no threshold"), NULL;
    return Py_NewRef(Py_None);
}

/* One whole decision over a row: a list of readings by feature, or a buffer that holds them. */
static PyObject *image_decide(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Image *image = (Image *)object;
    uint64_t stack[STACK_BYTES / 8];
    hc_session *s = image->session_bytes > sizeof stack ? PyMem_Malloc(image->session_bytes) : (hc_session *)stack;
    const unsigned char *row = NULL;
    PyObject *made = NULL;
    Py_buffer view;
    options o;
    int action;
    view.obj = NULL;
    if (s == NULL) return PyErr_NoMemory();
    if (n_args != 1) {
        PyErr_SetString(PyExc_TypeError, "decide takes one row");
        goto done;
    }
    if (read_options(&o, args + 1, names, 1) < 0 || start_session(s, image, &o) < 0) goto done;
    if (Py_TYPE(args[0]) != &PyList_Type && PyObject_CheckBuffer(args[0])) {
        int has_bytes = PyObject_GetBuffer(args[0], &view, PyBUF_FORMAT) == 0;
        if (!has_bytes) PyErr_Clear();
        if (has_bytes && is_row(image, &view)) row = view.buf;
        if (row != NULL && (view.len != image->row_bytes || (uintptr_t)view.buf % 8 != 0)) {
            PyErr_Format(PyExc_ValueError, "a row of %zd bytes, %zd aligned to 8 are read here", view.len,
                         image->row_bytes);
            goto done;
        }
    }
    while ((action = hc_next(s)) != HC_DECIDED) {
        if (action == HC_NEED_SENSORS) {
            for (int sensor; (sensor = hc_wanted(s)) >= 0;) {
                const sensor_info *info = &image->sensors[sensor];
                if (row == NULL) {
                    if (feed_object(image, s, sensor, args[0], 1, -1) < 0) goto done;
                } else {
                    hc_feed(s, sensor, row + (info->count ? info->features[0] * (info->types[0] == F64 ? 8 : 4) : 0));
                }
            }
        } else if (o.reply == NULL || o.reply == Py_None) {
            hc_no_reply(s);
        } else {
            PyObject *pair = PySequence_Tuple(o.reply);
            int is_taken = pair != NULL && PyTuple_Size(pair) == 2;
            if (pair != NULL && !is_taken) PyErr_SetString(PyExc_TypeError, "a reply is a result and a confidence");
            is_taken = is_taken && reply_objects(image, s, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1)) == 0;
            Py_XDECREF(pair);
            if (!is_taken) goto done;
        }
    }
    made = make_decision(image, s);
done:
    if (view.obj != NULL) PyBuffer_Release(&view);
    if (s != (hc_session *)stack) PyMem_Free(s);
    return made;
}

static PyMethodDef image_methods[] = {
    {"session", (PyCFunction)(void (*)(void))image_session, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"decide", (PyCFunction)(void (*)(void))image_decide, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"move", image_move, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot image_slots[] = {
    {Py_tp_new, image_new}, {Py_tp_dealloc, image_free}, {Py_tp_methods, image_methods}, {0, NULL}};
static PyType_Spec image_spec = {"hardcase_edge._kernel.Image", sizeof(Image), 0, Py_TPFLAGS_DEFAULT, image_slots};

PyObject *add_image(PyObject *module)
{
    PyObject *session = make_session_type(), *image = PyType_FromSpec(&image_spec);
    if (session == NULL || image == NULL || PyObject_SetAttrString(image, "Session", session) < 0 ||
        PyModule_AddObjectRef(module, "Session", session) < 0 || PyModule_AddObjectRef(module, "Image", image) < 0)
        Py_CLEAR(image);
    Py_XDECREF(session);
    return image;
}
