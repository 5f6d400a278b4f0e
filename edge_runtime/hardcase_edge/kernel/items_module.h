/* SPDX-License-Identifier: Apache-2.0 */
/* Items and ItemSession: items of several parts, as hardcase_edge/joint/session.py decides them. */
#ifndef HARDCASE_ITEMS_MODULE_H
#define HARDCASE_ITEMS_MODULE_H

#include "module.h"

int add_items(PyObject *module, PyObject *image_type);

#endif
