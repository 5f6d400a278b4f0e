/* SPDX-License-Identifier: Apache-2.0 */
/* One session from outside, for the harnesses here: every wanted sensor gives a block of readings or fails. */
#include <stdlib.h>
#include <string.h>

#include "hardcase.h"

#define NEED(what)                                                              \
    do {                                                                        \
        if (!(what)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                            \
        }                                                                       \
    } while (0)

/* A copy in memory of its own, exactly so long, so that a sanitizer sees one byte too far. */
static void *copy_of(const void *data, size_t n)
{
    void *made = malloc(n ? n : 1);
    NEED(made != NULL);
    if (n) memcpy(made, data, n);
    return made;
}
