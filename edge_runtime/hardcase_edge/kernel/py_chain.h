/* SPDX-License-Identifier: Apache-2.0 */
/* The type Chain of hardcase_edge._kernel. */
#ifndef HARDCASE_PY_CHAIN_H
#define HARDCASE_PY_CHAIN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the type to the module; -1 with an exception if that fails. */
int add_chain(PyObject *module);

#endif
