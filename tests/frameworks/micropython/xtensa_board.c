/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for MicroPython on an emulated Xtensa: loads a native module's code, and calls it as stdin says. */
#include <stddef.h>
#include <stdint.h>

static long linux(long number, long a, long b, long c)
{
    register long r2 __asm__("a2") = number, r6 __asm__("a6") = a, r3 __asm__("a3") = b, r4 __asm__("a4") = c;
    __asm__ volatile(".byte 0, 0x50, 0" : "+r"(r2) : "r"(r6), "r"(r3), "r"(r4) : "memory");
    return r2;
}

static void get(void *to, long n)
{
    for (long k; n > 0; n -= k, to = (char *)to + k)
        if ((k = linux(12, 0, (long)to, n)) <= 0) linux(118, 0, 0, 0);
}

typedef struct {
    int kind; /* 0: whole, 1: bytes */
    long n;
    void *at;
} object;
typedef void *(*function)(void *self, size_t n_args, size_t n_kw, object **args);

unsigned char text[1 << 16] __attribute__((aligned(16))), rodata[1 << 12] __attribute__((aligned(16)));
static uint64_t image[1 << 13], session[1 << 10], data[1 << 10];
static function called;

static uintptr_t get_int(object *o, int type) { return type == 2 && o->kind == 0 ? (uintptr_t)o->n : 0; }
static void *new_int(uintptr_t value, int type) { return type == 2 ? (void *)value : NULL; }
static void *swap(void *globals) { return globals; }
static void store(size_t name, void *object)
{
    if (name == 7) called = (function)object;
}
static void *make(const void *code, const void *context, const void *children)
{
    (void)context, (void)children;
    return ((void *const *)code)[1];
}
static void count(size_t n, size_t n_kw, uint32_t limits)
{
    if (n_kw || n != limits >> 17) linux(118, 3, 0, 0);
}
static int buffer(object *o, void **info, uintptr_t how)
{
    if (o->kind != 1 || !(how & 4)) linux(118, 4, 0, 0);
    info[0] = o->at;
    info[1] = (void *)o->n;
    return 1;
}

int main(void)
{
    static object none, whole[2], bytes[3] = {{1, 0, image}, {1, 0, session}, {1, 0, data}};
    static void *table[80], *objects[] = {table};
    static const uint16_t names[] = {3, 7};
    static const void *context[] = {NULL, NULL, names, objects};
    static const void *self[] = {NULL, context};
    int32_t head[6], made;
    table[0] = &none, table[3] = (void *)get_int, table[4] = (void *)new_int, table[5] = (void *)swap;
    table[13] = (void *)store, table[26] = (void *)make, table[44] = (void *)count, table[65] = (void *)buffer;
    get(head, 8);
    get(text, head[0]);
    get(rodata, head[1]);
    ((function)(void *)text)(self, 0, 0, NULL);
    for (;;) { /* operation, number, and bytes of image, session and data, -1: none; an image of 0 bytes: the last one */
        object *args[5] = {&whole[0], &bytes[0], &none, &whole[1], &none};
        get(head, 20);
        whole[0].n = head[0], whole[1].n = head[1];
        if (head[2] > 0) get(image, bytes[0].n = head[2]);
        if (head[3] >= 0) get(session, bytes[1].n = head[3]), args[2] = &bytes[1];
        if (head[4] >= 0) get(data, bytes[2].n = head[4]), args[4] = &bytes[2];
        made = (int32_t)(intptr_t)called((void *)self, 5, 0, args);
        linux(13, 1, (long)&made, 4);
        if (head[3] > 0) linux(13, 1, (long)session, head[3]);
    }
}
