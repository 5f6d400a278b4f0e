/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel for MicroPython: one function, hardcase_kernel.call(op, image, session, number, data), which hardcase.py
 * wraps. It compiles as a native module (a .mpy file that a board loads) and as a user C module (part of a firmware).
 *
 * image and session are buffers aligned to 8; a session belongs to the image with which START began it. The result is a
 * small integer: what the function of hardcase.h says, or one of its errors, or one of those below. */
#if defined(MICROPY_ENABLE_DYNRUNTIME) && MICROPY_ENABLE_DYNRUNTIME
#include "py/dynruntime.h"
#else
#include "py/runtime.h"
#endif
#include "hardcase.c"

/* What call does, in the order in which hardcase/__init__.py counts it. */
enum {
    OP_CHECK, OP_SESSION_BYTES, OP_READING_BYTES, OP_LARGEST_ITEM, OP_START, OP_DEAD, OP_NEXT, OP_FEED, OP_REQUEST,
    OP_REQUEST_BYTES, OP_REPLY, OP_NO_REPLY, OP_RESEND, OP_WAS_BOUGHT, OP_HAS_FAILED, OP_WAS_UNPAID, OP_VISITED
};

#define ERROR_BUFFER (-4) /* too short, or not aligned to 8 */
#define ERROR_SESSION (-5) /* not begun with this image */
#define NEED_REPLY 0x10000
#define DECIDED 0x10001

typedef struct {
    const unsigned char *at;
    size_t n;
} data_of;

static inline int is_aligned(const void *at) { return ((uintptr_t)at & 7) == 0; }

/* What is needed next: the number of a sensor, or one of two that no sensor has. */
static int next_of(hc_session *s, int code)
{
    int what = code < 0 ? code : hc_next(s);
    return what < 0 ? what : what == HC_NEED_SENSORS ? hc_wanted(s) : what == HC_NEED_REPLY ? NEED_REPLY : DECIDED;
}

static int of_session(int op, data_of image, hc_session *s, int number, data_of data)
{
    switch (op) {
    case OP_DEAD: return hc_dead(s, number);
    case OP_NEXT: return next_of(s, 0);
    case OP_FEED:
        if (data.at != NULL && (!is_aligned(data.at) || data.n < hc_readings_bytes(image.at, number))) return ERROR_BUFFER;
        return next_of(s, hc_feed(s, number, data.at));
    case OP_REQUEST: return (int)(hc_request(s) - (const unsigned char *)s);
    case OP_REQUEST_BYTES: return (int)hc_request_bytes(s);
    case OP_REPLY:
        if (data.n < 8 || !is_aligned(data.at)) return ERROR_BUFFER;
        return next_of(s, hc_reply(s, get_i64(data.at), number));
    case OP_NO_REPLY: return next_of(s, hc_no_reply(s));
    case OP_RESEND: return hc_resend(s);
    case OP_WAS_BOUGHT: return hc_was_bought(s, number);
    case OP_HAS_FAILED: return hc_has_failed(s, number);
    case OP_WAS_UNPAID: return hc_was_unpaid(s, number);
    case OP_VISITED: return hc_visited(s, number);
    default: return HC_ERROR_ARGUMENT;
    }
}

static int run(int op, data_of image, data_of session, int number, data_of data)
{
    hc_session *s = (hc_session *)(uintptr_t)session.at;
    if (!is_aligned(image.at)) return ERROR_BUFFER;
    if (op == OP_CHECK) return hc_check(image.at, image.n);
    if (image.n < 4 * S_WORDS || image.n != hc_image_bytes(image.at)) return ERROR_BUFFER;
    if (op == OP_SESSION_BYTES) return (int)hc_session_bytes(image.at);
    if (op == OP_READING_BYTES) return (int)hc_readings_bytes(image.at, number);
    if (op == OP_LARGEST_ITEM) return (int)hc_largest_item(image.at);
    if (s == NULL || !is_aligned(s) || session.n < hc_session_bytes(image.at)) return ERROR_BUFFER;
    if (op == OP_START) { /* number: the size of the item times two, and one more if the HPC can be reached */
        if (data.n < 8 || !is_aligned(data.at)) return ERROR_BUFFER;
        return hc_start(s, image.at, get_i64(data.at), number >> 1, number & 1);
    }
    if (s->image.bytes != image.at) return ERROR_SESSION;
    return of_session(op, image, s, number, data);
}

#if defined(MICROPY_ENABLE_DYNRUNTIME) && MICROPY_ENABLE_DYNRUNTIME
#define SELF mp_obj_fun_bc_t *self,
#define PASS self,
#else
#define SELF
#define PASS
#endif

static data_of buffer_of(SELF mp_obj_t object, mp_uint_t how)
{
    mp_buffer_info_t info;
    data_of none = {NULL, 0}, found;
    if (object == mp_const_none) return none;
    mp_get_buffer_raise(object, &info, how);
    found.at = info.buf;
    found.n = info.len;
    return found;
}

#if defined(MICROPY_ENABLE_DYNRUNTIME) && MICROPY_ENABLE_DYNRUNTIME
static mp_obj_t call(mp_obj_fun_bc_t *self, size_t n_args, size_t n_kw, mp_obj_t *args)
{
    mp_arg_check_num(n_args, n_kw, 5, 5, false);
#else
static mp_obj_t call(size_t n_args, const mp_obj_t *args)
{
    (void)n_args;
#endif
    data_of image = buffer_of(PASS args[1], MP_BUFFER_READ), session = buffer_of(PASS args[2], MP_BUFFER_WRITE);
    data_of data = buffer_of(PASS args[4], MP_BUFFER_READ);
    int op = (int)mp_obj_get_int(args[0]), number = (int)mp_obj_get_int(args[3]);
    return mp_obj_new_int(run(op, image, session, number, data));
}

#if defined(MICROPY_ENABLE_DYNRUNTIME) && MICROPY_ENABLE_DYNRUNTIME
mp_obj_t mpy_init(mp_obj_fun_bc_t *self, size_t n_args, size_t n_kw, mp_obj_t *args)
{
    MP_DYNRUNTIME_INIT_ENTRY
    mp_store_global(MP_QSTR_call, MP_DYNRUNTIME_MAKE_FUNCTION(call));
    MP_DYNRUNTIME_INIT_EXIT
}
#else
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(call_obj, 5, 5, call);
static const mp_rom_map_elem_t globals_table[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_hardcase_kernel)},
    {MP_ROM_QSTR(MP_QSTR_call), MP_ROM_PTR(&call_obj)},
};
static MP_DEFINE_CONST_DICT(globals, globals_table);
const mp_obj_module_t hardcase_kernel_module = {
    .base = {&mp_type_module},
    .globals = (mp_obj_dict_t *)&globals,
};
MP_REGISTER_MODULE(MP_QSTR_hardcase_kernel, hardcase_kernel_module);
#endif
