/* SPDX-License-Identifier: Apache-2.0 */
/* hardcase: the kernel. It executes a verified program, one decision at a time, and does no I/O.
 *
 * The program comes as an *image*: a constant array of bytes, aligned to 8, that hardcase_edge/kernel/image.py makes of a
 * bundle's program (docs/SPEC-image-v1.md). The caller gives the memory of a session. There is no allocation, no
 * global, no recursion and no floating point here: readings are looked at as bits, everything else is integers, and
 * the decision is the same on every machine as that of the Python evaluator (docs/SPEC-program-v1.md).
 *
 *     static const uint64_t model[] = { ... };                   made by hardcase
 *     static HC_SESSION(memory, MODEL_SESSION_BYTES);            made once; one for each decision that runs at a time
 *     hc_session *s = &memory.session;
 *
 *     hc_start(s, model, HC_NO_BUDGET, 1, HC_CLOUD);
 *     for (;;) {
 *         switch (hc_next(s)) {
 *         case HC_NEED_SENSORS:
 *             for (int sensor; (sensor = hc_wanted(s)) >= 0;)
 *                 hc_feed(s, sensor, read_it(sensor) ? readings : NULL);
 *             break;
 *         case HC_NEED_REPLY:
 *             if (ask(hc_request(s), hc_request_bytes(s), &result, &confidence)) hc_reply(s, result, confidence);
 *             else hc_no_reply(s);
 *             break;
 *         default:
 *             return s->result;
 *         }
 *     }
 *
 * Sensors, features, nodes and classes have the numbers they have in the program. Costs are in millionths of the
 * user's unit. A byte order other than little-endian is not supported.
 *
 * Trust: every function but hc_check believes its image. Call hc_check once on an image that comes from outside; a
 * constant table of your own build needs no check, and a linker with --gc-sections then leaves hc_check out. After
 * hc_check, no readings, replies or order of calls can make the kernel read or write outside image and session.
 */
#ifndef HARDCASE_H
#define HARDCASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parts of the kernel, of which hardcase_config.h names those that are compiled. A policy must find all that it needs:
 * model.h and hc_check see to that. */
#define HC_POLYNOMIALS 0x0001u /* linear and polynomial scorers */
#define HC_STACKS 0x0002u      /* linear scorers over single trees */
#define HC_WIDE 0x0004u        /* trees on codes of 16 bits; those on 8 are always there */
#define HC_POINTERS 0x0008u    /* deep trees; complete ones are always there */
#define HC_INLINE 0x0010u      /* ensembles as code: hc_inline, in inline.c */
#define HC_AFFINE 0x0020u      /* columns that scale readings; ranks are always there */
#define HC_F64 0x0040u         /* readings of double precision */
#define HC_BRANCHES 0x0080u
#define HC_TOURNAMENTS 0x0100u
#define HC_SELECTS 0x0200u
#define HC_FORWARDS 0x0400u
#define HC_WALK_3 0x0800u /* a walk of its own for trees of this depth with one value a leaf */
#define HC_WALK_4 0x1000u
#define HC_WALK_5 0x2000u
#define HC_WALK_6 0x4000u
#define HC_WALK_ANY 0x8000u
#define HC_NETWORKS 0x10000u /* layers of int8 numbers */
#define HC_STARTS 0x20000u   /* a cost of each decision at its start */
#define HC_VALUES 0x40000u   /* answers that are values; those that are classes are always there */
#define HC_ALL_PARTS 0x7FFFFu

#define HC_IMAGE_VERSION 1

/* What hc_next says. */
#define HC_NEED_SENSORS 1 /* read the sensors that hc_wanted names, then hc_feed each */
#define HC_NEED_REPLY 2   /* send hc_request to the HPC, then hc_reply or hc_no_reply */
#define HC_DECIDED 3      /* the session's result, confidence, route and costs hold */

/* Errors; the session is as it was. */
#define HC_ERROR_ORDER (-1)    /* this call does not answer what hc_next asked for */
#define HC_ERROR_ARGUMENT (-2) /* a sensor, item size, class or confidence that the program does not have */
#define HC_ERROR_BUDGET (-3)   /* less than a decision costs at its start */

/* How a decision ended. */
#define HC_ROUTE_LOCAL 0
#define HC_ROUTE_CLOUD 1
#define HC_ROUTE_DEGRADED 2 /* it wanted the cloud and had no reply */

#define HC_NO_BUDGET INT64_MAX
#define HC_CLOUD 1    /* the HPC can be reached */
#define HC_NO_CLOUD 0 /* it cannot: forwarding buys nothing and the fallback answers, degraded */

/* One decision. The first group may be read after HC_DECIDED; the rest is the kernel's own. The image says how many
 * bytes follow this struct. A session holds no pointer but that of its image: it may be copied and moved whole. */
typedef struct hc_session {
    int64_t result;      /* class index; in a program of values, the value in the steps of the bundle's scale */
    int64_t spent;       /* declared costs so far */
    int64_t saved;       /* what sensors cost less than declared: the decision's cost is spent - saved */
    uint16_t confidence; /* basis points, 0 to 10000 */
    uint16_t steps;      /* nodes visited so far */
    uint8_t route;       /* HC_ROUTE_* */

    uint8_t phase, is_degraded, has_cloud;
    int32_t item_size;
    uint32_t at, cursor, has_failed;
    int64_t budget;
    union {
        const unsigned char *bytes;
        uint64_t eight; /* the struct has one size on all machines */
    } image;
} hc_session;

/* Memory for a session, as a variable: static HC_SESSION(name, bytes); the session is &name.session. */
#define HC_SESSION(name, bytes)                        \
    union {                                            \
        hc_session session;                            \
        unsigned char memory[bytes];                   \
    } name

/* Bytes of an image, of a session of it, and of a sensor's readings (0 for one that is not there); the largest item. */
size_t hc_image_bytes(const void *image);
size_t hc_session_bytes(const void *image);
size_t hc_readings_bytes(const void *image, int sensor);
uint32_t hc_largest_item(const void *image);

/* Is this an image that cannot do harm? Returns 1 or 0.
 *
 * image   any bytes, aligned to 8; n_bytes of them are there
 *
 * Checked: every index, offset and shape, that targets lie ahead of their node, that sessions fit their memory.
 * Not checked: what the verifier proves of costs and sums. Those wrap around in a forged image, harmlessly. */
int hc_check(const void *image, size_t n_bytes);

/* Set the threshold of a node that branches by threshold or margin, in an image that lies in RAM; sessions go on with it.
 * What the verifier has proved holds for every threshold. Nodes whose thresholds were not meant to move may share theirs.
 *
 * Returns 0, or HC_ERROR_ARGUMENT for a node that is another. */
int hc_move(void *image, uint32_t node, int64_t threshold);

/* Begin a decision.
 *
 * s          hc_session_bytes(image) bytes, aligned to 8; whatever they held is gone
 * image      aligned to 8; must outlive the session
 * budget     the most that declared costs may come to; HC_NO_BUDGET for no limit
 * item_size  1 to the program's largest
 * cloud      HC_CLOUD or HC_NO_CLOUD
 *
 * Returns 0, HC_ERROR_ARGUMENT for the item size, or HC_ERROR_BUDGET for a budget below hc_start_cost. */
int hc_start(hc_session *s, const void *image, int64_t budget, int32_t item_size, int cloud);

/* What each decision costs before it buys anything, in micro-units. */
int64_t hc_start_cost(const void *image);

/* A sensor that is known not to work: it is never asked for and never charged. Between hc_start and hc_next. */
int hc_dead(hc_session *s, int sensor);

/* Go on until something is needed: HC_NEED_SENSORS, HC_NEED_REPLY or HC_DECIDED; the same again until it is done. */
int hc_next(hc_session *s);

/* A sensor that is still to be fed, or -1 when none is. */
int hc_wanted(const hc_session *s);

/* All of them, to read them at once: for (int at = 0, sensor; (sensor = hc_wanted_next(s, &at)) >= 0;) ... */
int hc_wanted_next(const hc_session *s, int *at);

/* Give a sensor's readings, charge its declared cost.
 *
 * readings   the sensor's features in order, each of its declared type (int32_t, float or double) and aligned to
 *            it, as in a C array or struct; NULL if the sensor failed. Missing: INT32_MIN, NaN, infinity.
 *            A missing reading of a feature that may not be missing makes the sensor fail. Not kept: only copied.
 *
 * Returns 0, HC_ERROR_ORDER if that sensor is not wanted. */
int hc_feed(hc_session *s, int sensor, const void *readings);

/* The same for a sensor that says it really cost less; a cost outside 0 to the declared one is not believed. */
int hc_feed_at(hc_session *s, int sensor, const void *readings, int64_t cost);

/* After HC_NEED_REPLY: the readings to send, packed as the wire has them (docs/SPEC-wire-v1.md, little-endian, missing
 * as INT32_MIN or NaN), in the session's own memory until hc_reply or hc_no_reply. */
const unsigned char *hc_request(const hc_session *s);
size_t hc_request_bytes(const hc_session *s);

/* The HPC's answer: a class index (in a program of values, the value in steps) and its confidence in basis points. */
int hc_reply(hc_session *s, int64_t result, int confidence);

/* Time is up: the fallback answers, degraded. */
int hc_no_reply(hc_session *s);

/* Charge one more transmission: 1, or 0 (nothing charged) if the budget forbids it. */
int hc_resend(hc_session *s);

/* By the clock: what has really been spent until now, 0 to 2^62, in place of the declared costs of what was bought. Where
 * the unit of cost is a time, call it after hc_start, after each sensor that was fed and after hc_no_reply; a reading
 * that would come after the budget's time is over counts as failed. */
int hc_elapsed(hc_session *s, int64_t amount);

/* Was this sensor bought (failed ones included)? Did the walk want it in vain, because it is dead or has failed, or
 * because the budget did not suffice? The node visited at step 0 to steps - 1. */
int hc_was_bought(const hc_session *s, int sensor);
int hc_has_failed(const hc_session *s, int sensor);
int hc_was_unpaid(const hc_session *s, int sensor);
int hc_visited(const hc_session *s, int step);

/* The scores of an ensemble that is code: defined by the exported inline.c, where hardcase_config.h says HC_INLINE.
 *
 * keys         of readings, as their structs have them; all aligned to 8
 * small, wide  cells, of 8 and 16 bits
 * scores       written, 8 bytes each */
void hc_inline(uint32_t scorer, const unsigned char *keys, const unsigned char *small, const unsigned char *wide,
               unsigned char *scores);

#ifdef __cplusplus
}
#endif

#endif
