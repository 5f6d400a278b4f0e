/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel: the functions of hardcase.h, which is its manual. docs/SPEC-image-v1.md defines every word of the image that
 * it reads. This file includes all others: the kernel is one unit for the compiler, which a firmware compiles alone.
 *
 * Rules here: the image and what follows a session are only ever touched through the loads and stores of hc_portable.h;
 * sums that a forged image could overflow are unsigned. */
#include "hc_check_nodes.h"
#include "hc_check_readings.h"
#include "hc_check_scorers.h"
#include "hc_nodes.h"

size_t hc_image_bytes(const void *image) { return word(image, H_IMAGE_BYTES); }
size_t hc_session_bytes(const void *image) { return word(image, H_SESSION_BYTES); }
uint32_t hc_largest_item(const void *image) { return word(image, H_ITEM_SIZE); }

size_t hc_readings_bytes(const void *image, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image, H_SENSORS)) return 0;
    return word(sensor_record(image, (uint32_t)sensor), SENSOR_READING_BYTES);
}

int hc_move(void *image, uint32_t node, int64_t threshold)
{
    bytes_in record;
    if (node >= word(image, H_NODES)) return HC_ERROR_ARGUMENT;
    record = node_record(image, node);
    if (word(record, NODE_KIND) != BRANCH || word(record, BRANCH_RULE) > MARGIN) return HC_ERROR_ARGUMENT;
    put_i64((unsigned char *)image + word(record, BRANCH_THRESHOLD), threshold);
    return 0;
}

int hc_start(hc_session *s, const void *image, int64_t budget, int32_t item_size, int cloud)
{
    bytes_in in = (bytes_in)ALIGNED(image, 8);
    unsigned char *wide;
    uint32_t small_left = word(in, H_SMALL_LEFT), small = word(in, H_SMALL), n_wide = word(in, H_WIDE);
    int64_t start = start_cost(in);
    if (item_size < 1 || (uint32_t)item_size > word(in, H_ITEM_SIZE)) return HC_ERROR_ARGUMENT;
    if (start > 0 && start > budget) return HC_ERROR_BUDGET;
    s->result = s->saved = 0;
    s->spent = start;
    s->confidence = s->steps = 0;
    s->route = s->is_degraded = 0;
    s->phase = NEW;
    s->has_cloud = cloud != 0;
    s->item_size = item_size;
    s->at = s->cursor = s->has_failed = 0;
    s->budget = budget;
    s->image.eight = 0;
    s->image.bytes = in;
    memset(part(s, S_SENSORS), 0, word(in, S_SMALL) - word(in, S_SENSORS) + small_left); /* three parts, side by side */
    if (small > small_left) memset(part(s, S_SMALL) + small_left, SMALL_MISSING, small - small_left);
    wide = part(s, S_WIDE);
    for (uint32_t k = 0; k < n_wide; k++)
        put_i16(wide + 2 * (size_t)k, k < word(in, H_WIDE_LEFT) ? MISSING : CODE_MAX);
    return 0;
}

int64_t hc_start_cost(const void *image) { return start_cost((bytes_in)ALIGNED(image, 8)); }

int hc_dead(hc_session *s, int sensor)
{
    if (s->phase != NEW) return HC_ERROR_ORDER;
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return HC_ERROR_ARGUMENT;
    part(s, S_SENSORS)[sensor] |= FAILED;
    s->has_failed = 1;
    return 0;
}

int hc_next(hc_session *s)
{
    unsigned char *trace = part(s, S_TRACE);
    bytes_in image = image_of(s);
    if (s->phase == WAIT_SENSORS && hc_wanted(s) < 0) s->phase = RUNNING;
    if (s->phase == NEW) {
        s->phase = RUNNING;
        put_i16(trace, 0);
        s->steps = 1;
    }
    while (s->phase == RUNNING) {
        bytes_in node = node_record(image, s->at);
        uint32_t before = s->at;
        uint32_t kind = word(node, NODE_KIND);
        if (kind == ACQUIRE) acquire(s, node);
        else if (HAS(HC_BRANCHES) && kind == BRANCH) s->at = branch(s, node);
        else if (HAS(HC_SELECTS) && kind == SELECT) s->at = select_model(s, node);
        else if (HAS(HC_FORWARDS) && kind == FORWARD) forward(s, node);
        else answer(s, node);
        if (s->at != before && s->steps < word(image, H_STEPS)) put_i16(trace + 2 * (size_t)s->steps++, (int16_t)s->at);
    }
    return s->phase == WAIT_SENSORS ? HC_NEED_SENSORS : s->phase == WAIT_REPLY ? HC_NEED_REPLY : HC_DECIDED;
}

int hc_wanted_next(const hc_session *s, int *from)
{
    bytes_in node = node_record(image_of(s), s->at);
    const unsigned char *flags = part_of(s, S_SENSORS);
    if (s->phase != WAIT_SENSORS) return -1;
    for (uint32_t k = (uint32_t)*from; k < word(node, BUY_SENSORS); k++) {
        uint32_t sensor = word(node, BUY_WORDS + k);
        if (flags[sensor] & WANTED) {
            *from = (int)k + 1;
            return (int)sensor;
        }
    }
    return -1;
}

int hc_wanted(const hc_session *s)
{
    int from = (int)s->cursor;
    return hc_wanted_next(s, &from);
}

int hc_feed_at(hc_session *s, int sensor, const void *readings, int64_t cost)
{
    bytes_in image = image_of(s), record;
    unsigned char *flags = part(s, S_SENSORS) + sensor;
    int64_t declared;
    int from = (int)s->cursor;
    if (s->phase != WAIT_SENSORS) return HC_ERROR_ORDER;
    if (sensor < 0 || (uint32_t)sensor >= word(image, H_SENSORS) || !(*flags & WANTED)) return HC_ERROR_ORDER;
    if (sensor == hc_wanted_next(s, &from)) s->cursor = (uint32_t)from; /* behind it, so that feeding all is linear */
    record = sensor_record(image, (uint32_t)sensor);
    declared = cost_of(s, (uint32_t)sensor);
    s->spent = add64(s->spent, declared);
    if (cost >= 0 && cost < declared) s->saved = add64(s->saved, declared - cost);
    *flags = BOUGHT;
    if (readings == NULL || !take(s, (uint32_t)sensor, readings)) {
        *flags |= FAILED;
        s->has_failed = 1;
    }
    for (uint32_t k = 0; k < word(record, SENSOR_SCORERS_COUNT); k++)
        part(s, S_IS_SCORED)[get_u16(image + word(record, SENSOR_SCORERS) + 2 * (size_t)k)] = 0;
    return 0;
}

int hc_feed(hc_session *s, int sensor, const void *readings) { return hc_feed_at(s, sensor, readings, -1); }

const unsigned char *hc_request(const hc_session *s) { return part_of(s, S_REQUEST); }
size_t hc_request_bytes(const hc_session *s) { return word(image_of(s), H_REQUEST_BYTES); }

int hc_reply(hc_session *s, int64_t result, int confidence)
{
    int64_t n_classes = word(image_of(s), H_CLASSES);
    if (s->phase != WAIT_REPLY) return HC_ERROR_ORDER;
    if (confidence < 0 || confidence > 10000 || (n_classes > 0 && (result < 0 || result >= n_classes)))
        return HC_ERROR_ARGUMENT;
    decide(s, result, confidence, HC_ROUTE_CLOUD);
    return 0;
}

int hc_no_reply(hc_session *s)
{
    if (s->phase != WAIT_REPLY) return HC_ERROR_ORDER;
    s->is_degraded = 1;
    s->at = word(node_record(image_of(s), s->at), BUY_THEN);
    s->phase = RUNNING;
    if (s->steps < word(image_of(s), H_STEPS)) put_i16(part(s, S_TRACE) + 2 * (size_t)s->steps++, (int16_t)s->at);
    return 0;
}

int hc_resend(hc_session *s)
{
    if (s->phase != WAIT_REPLY) return HC_ERROR_ORDER;
    if (!fits(s, request_cost(s))) return 0;
    s->spent = add64(s->spent, request_cost(s));
    return 1;
}

int hc_elapsed(hc_session *s, int64_t amount)
{
    if (s->phase == DECIDED) return HC_ERROR_ORDER;
    if (amount < 0 || amount > INT64_C(0x4000000000000000)) return HC_ERROR_ARGUMENT;
    s->spent = amount;
    s->saved = 0;
    return 0;
}

int hc_was_bought(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return part_of(s, S_SENSORS)[sensor] & BOUGHT;
}

int hc_has_failed(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return (part_of(s, S_SENSORS)[sensor] & LACKED) != 0;
}

int hc_was_unpaid(const hc_session *s, int sensor)
{
    if (sensor < 0 || (uint32_t)sensor >= word(image_of(s), H_SENSORS)) return 0;
    return (part_of(s, S_SENSORS)[sensor] & UNPAID) != 0;
}

int hc_visited(const hc_session *s, int step)
{
    if (step < 0 || step >= s->steps) return -1;
    return get_u16(part_of(s, S_TRACE) + 2 * (size_t)step);
}

int hc_check(const void *image, size_t n_bytes)
{
    checked c;
    c.image = image;
    if (n_bytes < 4 * S_WORDS || n_bytes > UINT32_MAX) return 0;
    if (HAS(HC_STARTS) && word(image, H_MAGIC) == MAGIC_MORE) {
        if (n_bytes < 4 * M_WORDS || start_cost(image) < 1 || start_cost(image) >= SAFE) return 0;
    } else if (word(image, H_MAGIC) != MAGIC) {
        return 0;
    }
    if (word(image, H_IMAGE_BYTES) != n_bytes || n_bytes % 8) return 0;
    c.n_bytes = (uint32_t)n_bytes;
    c.work = MOST_WORK;
    return check_header(&c) && check_sensors(&c) && check_scorers(&c) && check_nodes(&c);
}
