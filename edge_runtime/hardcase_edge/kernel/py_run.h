/* SPDX-License-Identifier: Apache-2.0 */
/* What a run computes beside its decisions: the types Bucket and Table, and the functions of drift. */
#ifndef HARDCASE_PY_RUN_H
#define HARDCASE_PY_RUN_H

#include "py_module.h"

/* py_servo.c, py_drift.c: add them to the module; -1 with an exception if that fails. */
int add_servo(PyObject *module, PyObject *image_type);
int add_drift(PyObject *module);

#endif
