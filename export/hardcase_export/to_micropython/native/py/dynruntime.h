/* SPDX-License-Identifier: Apache-2.0 */
/* What hardcase_kernel.c uses of MicroPython's header of this name, for .mpy version 6.3 (MicroPython 1.23 and later):
 * so that a native module is compiled without MicroPython's sources. The table of functions is the module's object 0 and
 * "call" its name 1, as mpy.py writes them. So nothing here needs an address, and the code runs where it is loaded. */
#ifndef HARDCASE_PY_DYNRUNTIME_H
#define HARDCASE_PY_DYNRUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *mp_obj_t;
typedef intptr_t mp_int_t;
typedef uintptr_t mp_uint_t;

typedef struct {
    const void *type;
} mp_obj_base_t;

typedef struct {
    mp_obj_base_t base;
    void *globals;
    const uint16_t *names;
    void **objects;
} mp_module_context_t;

typedef struct {
    mp_obj_base_t base;
    const mp_module_context_t *context;
} mp_obj_fun_bc_t;

typedef struct {
    void *buf;
    size_t len;
    int typecode;
} mp_buffer_info_t;

typedef struct {
    uint8_t indicator[2], kind;
    bool is_generator;
    const void *fun_data;
    void *children[4]; /* and what some builds add */
} mp_raw_code_truncated_t;

/* Places in the table of functions, and what stands there. */
#define TABLE_AT(place) (((void *const *)self->context->objects[0])[place])
#define mp_const_none ((mp_obj_t)TABLE_AT(0))
#define mp_obj_get_int(object) ((mp_int_t)((mp_uint_t (*)(mp_obj_t, mp_uint_t))TABLE_AT(3))((object), 2))
#define mp_obj_new_int(value) (((mp_obj_t (*)(mp_uint_t, mp_uint_t))TABLE_AT(4))((mp_uint_t)(mp_int_t)(value), 2))
#define SWAP_GLOBALS(globals) (((void *(*)(void *))TABLE_AT(5))(globals))
#define mp_store_global(name, object) (((void (*)(size_t, mp_obj_t))TABLE_AT(13))((name), (object)))
#define MAKE_FUNCTION(code) (((mp_obj_t (*)(const void *, const void *, const void *))TABLE_AT(26))((code), self->context, NULL))
#define mp_arg_check_num(n, n_kw, least, most, has_kw) \
    (((void (*)(size_t, size_t, uint32_t))TABLE_AT(44))((n), (n_kw), (uint32_t)(least) << 17 | (most) << 1 | (has_kw)))
#define mp_get_buffer_raise(object, info, how) \
    ((void)((bool (*)(mp_obj_t, mp_buffer_info_t *, mp_uint_t))TABLE_AT(65))((object), (info), (how) | 4))

#define MP_BUFFER_READ 1
#define MP_BUFFER_WRITE 2
#define MP_QSTR_call (self->context->names[1])

#define MP_DYNRUNTIME_INIT_ENTRY                                          \
    void *globals_before = SWAP_GLOBALS(self->context->globals);          \
    mp_raw_code_truncated_t code = {{0, 0}, 4, false, NULL, {NULL}};      \
    (void)n_args, (void)n_kw, (void)args;
#define MP_DYNRUNTIME_MAKE_FUNCTION(function) (code.fun_data = (const void *)(function), MAKE_FUNCTION(&code))
#define MP_DYNRUNTIME_INIT_EXIT     \
    SWAP_GLOBALS(globals_before);   \
    return mp_const_none;

#endif
