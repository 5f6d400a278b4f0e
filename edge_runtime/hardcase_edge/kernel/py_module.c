/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase_edge._kernel: the kernel as a Python extension of the limited API.
 *
 * Image, Session  py_image.c, py_session.c: a program, one decision
 * Chain           py_chain.c: the chain of a joint program */
#include "py_module.h"

#include "py_chain.h"

enum { INTERFACE = 7 }; /* to compiled.py, which refuses another number: one more when either expects something new */

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "The kernel in C.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *module = PyModule_Create(&definition), *image = module == NULL ? NULL : add_image(module);
    if (image == NULL || add_records() < 0 || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
        add_chain(module) < 0)
        Py_CLEAR(module);
    Py_XDECREF(image);
    return module;
}
