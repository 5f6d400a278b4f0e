/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase_edge._kernel: the kernel as a Python extension of the limited API.
 *
 * Image   a program's image and what its sessions need of Python: made by hardcase_edge/kernel/compiled.py
 * Session one decision; the methods and errors of hardcase_edge.session.session.Session
 * Chain, Items  in chain_module.c and items_module.c
 *
 * A row of exact floats, ints and None is read here; whatever else a sensor gives goes to Python's own normalise, so
 * that both bodies take the same things for readings. */
#include "module.h"

#include <math.h>
#include <string.h>

#include "chain_module.h"
#include "items_module.h"

enum { STACK_BYTES = 2048, BASIS_POINTS = 10000 };
enum { INTERFACE = 5 }; /* to compiled.py, which refuses another number: one more when either expects something new */

typedef struct {
    PyObject_HEAD
    Image *image;
    PyObject *action; /* what was last asked for; NULL: ask the kernel */
    int kind;
    hc_session *session; /* in memory of its own */
} Session;

static PyObject *name_sensors, *name_readings, *names_decision[8];

/* ------------------------------------------------------------------ readings */

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

/* ------------------------------------------------------------------ Image */

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
static Py_ssize_t row_bytes(const Image *image)
{
    Py_ssize_t next = 0;
    int type = -1;
    for (Py_ssize_t s = 0; s < image->n_sensors; s++)
        for (Py_ssize_t k = 0; k < image->sensors[s].count; k++) {
            if (type < 0) type = image->sensors[s].types[k];
            if (image->sensors[s].types[k] != type || image->sensors[s].features[k] != next++) return 0;
        }
    return next * (type == F64 ? 8 : 4);
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
        PyObject *types, *features;
        if (!PyArg_ParseTuple(PyTuple_GetItem(sensors, s), "SO", &types, &features)) goto failed;
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

/* ------------------------------------------------------------------ starting a session */

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

/* An integer, cut off to 64 bits. */
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

int start_session(hc_session *s, const Image *image, const options *o)
{
    int64_t budget = HC_NO_BUDGET, size = 1;
    int overflow, cloud = HC_CLOUD;
    if (o->budget != NULL && o->budget != Py_None) budget = to_i64(o->budget, &overflow);
    if (o->item_size != NULL) size = to_i64(o->item_size, &overflow);
    if (o->cloud != NULL) cloud = PyObject_IsTrue(o->cloud);
    if (PyErr_Occurred()) return -1;
    if (size < 1 || size > INT32_MAX || hc_start(s, image->bytes, budget, (int32_t)size, cloud) < 0) {
        PyErr_Format(image->error, "item size %S is outside 1 to %lu", o->item_size,
                     (unsigned long)hc_largest_item(image->bytes));
        return -1;
    }
    if (o->dead != NULL) {
        PyObject *each = PyObject_GetIter(o->dead), *one;
        if (each == NULL) return -1;
        while ((one = PyIter_Next(each)) != NULL) {
            int64_t sensor = to_i64(one, &overflow);
            Py_DECREF(one);
            if (sensor >= 0 && sensor <= INT32_MAX) hc_dead(s, (int)sensor); /* one that does not exist is never met */
        }
        Py_DECREF(each);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ actions as objects */

/* An instance of a record, without calling its __init__. Steals the values. */
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

/* The sensors, in order, of which this is so. */
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

static PyObject *make_decision(const Image *image, const hc_session *s)
{
    PyObject *route = PyTuple_GetItem(image->route_names, s->route);
    PyObject *values[8] = {PyLong_FromLongLong(s->result), PyLong_FromLong(s->confidence), route,
                           PyLong_FromLongLong(s->spent - s->saved), sensors_that(hc_was_bought, image, s),
                           tuple_of(s->steps, hc_visited, s), sensors_that(hc_has_failed, image, s),
                           sensors_that(hc_was_unpaid, image, s)};
    Py_XINCREF(route);
    return instance(image->decision, names_decision, values, 8);
}

static PyObject *make_need_sensors(const Image *image, const hc_session *s)
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

static PyObject *make_need_reply(const Image *image, const hc_session *s)
{
    PyObject *made = request_readings(image, s);
    return instance(image->need_reply, &name_readings, &made, 1);
}

/* ------------------------------------------------------------------ feeding */

/* Feed one sensor what it gave: any object. -1 with an exception only where memory is out. */
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

static PyObject *image_session(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
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
        if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) goto done;
        if (image->row_bytes == 0 || view.len != image->row_bytes || (uintptr_t)view.buf % 8 != 0) {
            PyErr_Format(PyExc_ValueError, "a row of %zd bytes, %zd aligned to 8 are read here", view.len,
                         image->row_bytes);
            goto done;
        }
        row = view.buf;
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
            long long result;
            int confidence;
            if (!PyArg_ParseTuple(o.reply, "Li", &result, &confidence)) goto done;
            if (hc_reply(s, result, confidence) < 0) {
                PyErr_Format(image->error, "a reply of class %lld, confidence %d; there are %S classes", result,
                             confidence, image->n_classes);
                goto done;
            }
        }
    }
    made = make_decision(image, s);
done:
    if (view.obj != NULL) PyBuffer_Release(&view);
    if (s != (hc_session *)stack) PyMem_Free(s);
    return made;
}

/* ------------------------------------------------------------------ Session */

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

static PyObject *wrong_sensors(const Session *self, PyObject *readings)
{
    PyObject *asked = PyObject_GetAttr(self->action, name_sensors), *a = NULL, *b = NULL;
    if (asked != NULL) a = PySequence_List(readings), b = PySequence_List(asked);
    if (a != NULL && b != NULL && PyList_Sort(b) == 0) {
        if (PyList_Sort(a) < 0) PyErr_Clear();
        PyErr_Format(self->image->error, "readings of sensors %R were fed, %R were asked for", a, b);
    }
    Py_XDECREF(asked), Py_XDECREF(a), Py_XDECREF(b);
    return NULL;
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
    if (names != NULL && PyTuple_Size(names) == 1 && n_args == 1 &&
        PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "costs") == 0)
        costs = args[1];
    else if (n_args < 1 || n_args > 2 || (names != NULL && PyTuple_Size(names) > 0))
        return PyErr_SetString(PyExc_TypeError, "feed takes readings, and costs"), NULL;
    if (self->action == NULL || self->kind != HC_NEED_SENSORS)
        return PyErr_SetString(self->image->error,
                               "readings were fed, but the session did not ask for any; call next_action first"),
               NULL;
    asked = PyObject_GetAttr(self->action, name_sensors);
    if (asked == NULL) return NULL;
    n = PyTuple_Size(asked);
    if (PyObject_Size(readings) != n) {
        Py_DECREF(asked);
        return PyErr_Occurred() ? NULL : wrong_sensors(self, readings);
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        int found = PySequence_Contains(readings, PyTuple_GetItem(asked, k));
        if (found == 1) continue;
        Py_DECREF(asked);
        return found < 0 ? NULL : wrong_sensors(self, readings);
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *sensor = PyTuple_GetItem(asked, k), *values = PyObject_GetItem(readings, sensor);
        int64_t cost = values == NULL ? -1 : cost_said(costs, sensor);
        if (values == NULL || PyErr_Occurred() ||
            feed_object(self->image, self->session, (int)PyLong_AsLong(sensor), values, 0, cost) < 0) {
            Py_XDECREF(values);
            Py_DECREF(asked);
            return NULL;
        }
        Py_DECREF(values);
    }
    Py_DECREF(asked);
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
    int64_t result, confidence;
    int beyond, too;
    if (!needs_reply(self)) return NULL;
    if (n_args != 2) return PyErr_SetString(PyExc_TypeError, "reply takes a result and a confidence"), NULL;
    result = to_i64(args[0], &beyond);
    confidence = to_i64(args[1], &too);
    if (PyErr_Occurred()) return NULL;
    if (beyond || confidence < 0 || confidence > BASIS_POINTS || hc_reply(self->session, result, (int)confidence) < 0)
        return PyErr_Format(self->image->error, "a reply of class %S, confidence %S; there are %S classes", args[0],
                            args[1], self->image->n_classes);
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

/* ------------------------------------------------------------------ a session that is one part of an item */

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

/* ------------------------------------------------------------------ the module */

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

static PyMethodDef image_methods[] = {
    {"session", (PyCFunction)(void (*)(void))image_session, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"decide", (PyCFunction)(void (*)(void))image_decide, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"move", image_move, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot session_slots[] = {{Py_tp_dealloc, session_free}, {Py_tp_methods, session_methods}, {0, NULL}};
static PyType_Slot image_slots[] = {
    {Py_tp_new, image_new}, {Py_tp_dealloc, image_free}, {Py_tp_methods, image_methods}, {0, NULL}};

static PyType_Spec session_spec = {"hardcase_edge._kernel.Session", sizeof(Session), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, session_slots};
static PyType_Spec image_spec = {"hardcase_edge._kernel.Image", sizeof(Image), 0, Py_TPFLAGS_DEFAULT, image_slots};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "The kernel in C.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void)
{
    static const char *const fields[8] = {"result", "confidence", "route",  "cost",
                                          "sensors", "trace",      "failed", "unpaid"};
    PyObject *module = PyModule_Create(&definition);
    PyObject *session = PyType_FromSpec(&session_spec), *image = PyType_FromSpec(&image_spec);
    name_sensors = PyUnicode_InternFromString("sensors");
    name_readings = PyUnicode_InternFromString("readings");
    for (int k = 0; k < 8; k++) names_decision[k] = PyUnicode_InternFromString(fields[k]);
    if (module == NULL || session == NULL || image == NULL || PyErr_Occurred() ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
        PyObject_SetAttrString(image, "Session", session) < 0 ||
        PyModule_AddObjectRef(module, "Session", session) < 0 || PyModule_AddObjectRef(module, "Image", image) < 0 ||
        add_chain(module) < 0 || add_items(module, image) < 0)
        Py_CLEAR(module);
    Py_XDECREF(session);
    Py_XDECREF(image);
    return module;
}
