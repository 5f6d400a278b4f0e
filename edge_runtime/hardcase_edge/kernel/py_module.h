/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the extension share: an image with what its sessions need of Python, and how objects are made. */
#ifndef HARDCASE_PY_MODULE_H
#define HARDCASE_PY_MODULE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "hc_layout.h"
#include "parts.h"

typedef struct {
    unsigned char *types; /* of its readings */
    int32_t *features;
    Py_ssize_t count, bytes;
} sensor_info;

typedef struct {
    PyObject_HEAD
    void *bytes; /* the image, aligned */
    size_t session_bytes;
    Py_ssize_t n_features, n_sensors, n_uplink;
    sensor_info *sensors;
    unsigned char *uplink;
    Py_ssize_t row_bytes; /* of a row in a buffer; 0 where it cannot be read as it lies */
    char row_format;      /* of its readings, as of a buffer */
    PyObject *need_sensors, *need_reply, *decision, *error, *normalise, *route_names, *n_classes, *session_type;
} Image;

enum { STACK_BYTES = 2048, BASIS_POINTS = 10000 };

/* py_image.c: add Image and, as its attribute, Session; Image, or NULL with an exception. */
PyObject *add_image(PyObject *module);

/* py_session.c: the type Session, and Image.session, which makes one. */
PyObject *make_session_type(void);
PyObject *image_session(PyObject *image, PyObject *const *args, Py_ssize_t n_args, PyObject *names);

/* py_options.c: the keywords of a session. */
typedef struct {
    PyObject *budget, *item_size, *dead, *cloud, *reply;
} options;

int read_options(options *o, PyObject *const *values, PyObject *names, int has_reply);
int start_session(hc_session *s, const Image *image, const options *o);

/* An integer, cut off to 64 bits. */
int64_t to_i64(PyObject *value, int *overflow);

/* Take the HPC's answer, whatever objects its result and confidence are; -1 with an exception. */
int reply_objects(const Image *image, hc_session *s, PyObject *result, PyObject *confidence);

/* py_records.c: intern the names of fields; -1 with an exception if that fails. */
int add_records(void);
extern PyObject *name_sensors;

/* An instance of a record, without calling its __init__. Steals the values. */
PyObject *instance(PyObject *type, PyObject **names, PyObject **values, int n);
PyObject *tuple_of(Py_ssize_t n, int (*each)(const hc_session *, int), const hc_session *s);

/* The sensors, in order, of which this is so. */
PyObject *sensors_that(int (*is_so)(const hc_session *, int), const Image *image, const hc_session *s);
PyObject *make_decision(const Image *image, const hc_session *s);
PyObject *make_need_sensors(const Image *image, const hc_session *s);
PyObject *make_need_reply(const Image *image, const hc_session *s);

/* What an action asks for, a new reference; an exception if readings are not what it asks for. */
PyObject *asked_sensors(PyObject *action, int is_asked, PyObject *error);

/* NULL with an exception: these readings are not those that were asked for. */
PyObject *wrong_readings(const char *of_what, PyObject *readings, PyObject *asked, PyObject *error);

/* py_readings.c: the readings of the request that a session waits for. */
PyObject *request_readings(const Image *image, const hc_session *s);

/* Feed one sensor what it gave: any object. -1 with an exception only where memory is out. */
int feed_object(const Image *image, hc_session *s, int sensor, PyObject *values, int is_row, int64_t cost);

#endif
