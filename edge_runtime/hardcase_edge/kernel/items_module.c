/* SPDX-License-Identifier: Apache-2.0 */
/* Items(image, numbers, nodes, settings, tables, records): a joint program; session(parts, ...) makes an ItemSession.
 *
 * numbers   int64 of transitions, start and stop
 * nodes     6 int32 for each node: scorer, start and stop of what it tells the chain, the same of its policy; -1: none
 * settings  labels, the most parts, is it anytime, threshold, the inner sensors, function of an item size to costs
 * tables    bytes of int32: margins and confidences of parts, of items
 * records   NeedParts, NeedReplies, PartDecision, JointDecision, SessionError
 *
 * The methods, errors and decisions of an ItemSession are those of hardcase_edge.joint.session.JointSession, which says
 * what each step is for; both are compared on random items. */
#include "items_module.h"

#include <string.h>

#include "chain.h"

enum { FEATURES = 11, NODE = 6, NONE, SENSORS, REPLIES, DECIDED };
enum state { READY, ASKED, ASKING, WAITING, ENDED };

typedef struct {
    const int32_t *margins, *confidences;
    Py_ssize_t n_margins;
} table;

typedef struct {
    PyObject_HEAD
    Image *image;
    hc_chain chain;
    int32_t *nodes;
    unsigned char *is_inner;
    int64_t *numbers;
    int32_t *words; /* of both tables */
    table of_part, of_item;
    int most_parts, is_anytime;
    long long threshold;
    PyObject *costs, *need_parts, *need_replies, *part_decision, *joint_decision, *error, *session_type;
} Items;

typedef struct {
    int state;
    int64_t spent;
} part;

typedef struct {
    PyObject_HEAD
    Items *items;
    PyObject *action; /* what was last asked for; NULL: go on */
    PyObject *costs;  /* of sensors, where there is a budget */
    int kind, n, rounds;
    int64_t budget, reserved;
    size_t stride; /* bytes of a session */
    part *parts;
    unsigned char *sessions; /* n of them, and one to try out */
    int64_t *scores, *work;  /* (n, K), and what the chain needs */
    int32_t *fixed, *labels, *gaps;
} ItemSession;

static PyObject *type_of_images, *name_sensors, *name_requests, *names_part[7], *names_joint[5];

static hc_session *session_of(const ItemSession *self, int p) { return (hc_session *)(self->sessions + self->stride * (size_t)p); }

static int64_t *row_of(const ItemSession *self, int p) { return self->scores + (size_t)self->items->chain.labels * (size_t)p; }

/* ------------------------------------------------------------------ parts */

static int64_t left(const ItemSession *self)
{
    int64_t amount = self->budget - self->reserved;
    for (int p = 0; p < self->n; p++) amount -= self->parts[p].spent;
    return amount < 0 ? 0 : amount;
}

/* Walk one part as far as it goes alone. */
static int advance(ItemSession *self, int p)
{
    hc_session *s = session_of(self, p);
    part *one = &self->parts[p];
    int action;
    if (self->budget != HC_NO_BUDGET) hc_afford(s, left(self));
    action = hc_next(s);
    if (action == HC_NEED_SENSORS) {
        one->state = self->items->is_inner[hc_wanted(s)] ? WAITING : ASKED;
        for (int at = 0, sensor; one->state == ASKED && self->costs != NULL && (sensor = hc_wanted_next(s, &at)) >= 0;) {
            PyObject *cost = PySequence_GetItem(self->costs, sensor);
            int64_t amount = cost == NULL ? -1 : PyLong_AsLongLong(cost);
            Py_XDECREF(cost);
            if (PyErr_Occurred()) return -1;
            self->reserved += amount;
        }
    } else if (action == HC_NEED_REPLY) {
        one->state = ASKING;
        one->spent = s->spent;
    } else {
        one->state = ENDED;
    }
    return 0;
}

/* What a part that stands at this node tells the chain; one score stands for the pair (0, s). */
static int tell(ItemSession *self, int p, int node)
{
    const int32_t *slice = self->items->nodes + NODE * (Py_ssize_t)node; /* nodes are as many as the image has */
    int64_t *row = row_of(self, p);
    int width = slice[2] - slice[1];
    if (slice[0] < 0 || width < 1 || width > self->items->chain.labels) return -1;
    if (width == 1) *row++ = 0;
    return hc_scores(session_of(self, p), slice[0], slice[1], width, row);
}

static int tell_all(ItemSession *self)
{
    for (int p = 0; p < self->n; p++) {
        hc_session *s = session_of(self, p);
        int node = self->parts[p].state == WAITING ? hc_node(s) : hc_visited(s, s->steps - 1);
        if (self->fixed[p] == HC_NOT_FIXED && tell(self, p, node) < 0) {
            PyErr_SetString(self->items->error, "the program has no scores where a part stands");
            return -1;
        }
    }
    return 0;
}

static int32_t cut(int64_t value) { return value > HC_MAX_GAP ? HC_MAX_GAP : (int32_t)value; }

/* What the inner sensor gives of a part; joint/definition.py has the order. */
static void describe(const ItemSession *self, int p, int64_t mean, int32_t least, int32_t *out)
{
    const int64_t *row = row_of(self, p);
    const int32_t *gaps = self->gaps;
    int64_t best = row[0], second = INT64_MIN;
    for (int y = 1; y < self->items->chain.labels; y++) {
        if (row[y] > best) second = best, best = row[y];
        else if (row[y] > second) second = row[y];
    }
    out[0] = gaps[p];
    out[1] = gaps[p ? p - 1 : p];
    out[2] = gaps[p + 1 < self->n ? p + 1 : p];
    out[3] = (int32_t)mean;
    out[4] = least;
    out[5] = cut((int64_t)((uint64_t)best - (uint64_t)second));
    out[6] = cut((int64_t)((uint64_t)best - (uint64_t)row[self->labels[p]]));
    out[7] = p == 0;
    out[8] = p == self->n - 1;
    out[9] = self->n;
    out[10] = p;
}

/* The least gap and the mean of the gaps of all parts that are not fixed; how many they are. */
static int survey(const ItemSession *self, int64_t *mean, int32_t *least)
{
    int64_t sum = 0;
    int free = 0;
    *least = HC_MAX_GAP;
    for (int p = 0; p < self->n; p++) {
        if (self->fixed[p] != HC_NOT_FIXED) continue;
        sum += self->gaps[p];
        if (self->gaps[p] < *least) *least = self->gaps[p];
        free++;
    }
    *mean = free ? sum / free : 0;
    return free;
}

/* Decode, and let those go on that the release names. */
static int release(ItemSession *self)
{
    const Items *items = self->items;
    int32_t least, features[FEATURES];
    int64_t mean, highest = items->threshold;
    int best = -1;
    self->rounds++;
    if (tell_all(self) < 0) return -1;
    hc_decode(&items->chain, self->scores, self->fixed, self->n, self->work, self->labels, self->gaps);
    survey(self, &mean, &least);
    for (int p = 0; items->is_anytime && p < self->n; p++) {
        hc_session *trial = session_of(self, self->n);
        const int32_t *policy;
        int64_t score;
        if (self->parts[p].state != WAITING) continue;
        describe(self, p, mean, least, features);
        memcpy(trial, session_of(self, p), items->image->session_bytes);
        policy = items->nodes + NODE * (Py_ssize_t)hc_node(trial) + 3;
        hc_feed(trial, hc_wanted(trial), features);
        if (hc_scores(trial, policy[0], policy[1], 1, &score) < 0) {
            PyErr_SetString(items->error, "a barrier of an anytime release has no policy");
            return -1;
        }
        if (score > highest) best = p, highest = score;
    }
    for (int p = 0; p < self->n; p++) {
        hc_session *s = session_of(self, p);
        if (self->parts[p].state != WAITING || (best >= 0 && p != best)) continue;
        describe(self, p, mean, least, features);
        hc_feed(s, hc_wanted(s), features);
        self->parts[p].state = READY;
    }
    return 0;
}

/* ------------------------------------------------------------------ actions as objects */

static PyObject *make_need_parts(const ItemSession *self)
{
    Py_ssize_t n = 0;
    PyObject *made;
    for (int p = 0; p < self->n; p++)
        for (int at = 0; self->parts[p].state == ASKED && hc_wanted_next(session_of(self, p), &at) >= 0;) n++;
    made = PyTuple_New(n);
    n = 0;
    for (int p = 0; made != NULL && p < self->n; p++)
        for (int at = 0, s; self->parts[p].state == ASKED && (s = hc_wanted_next(session_of(self, p), &at)) >= 0;)
            PyTuple_SetItem(made, n++, Py_BuildValue("(ii)", p, s));
    return instance(self->items->need_parts, &name_sensors, &made, 1);
}

static PyObject *make_need_replies(const ItemSession *self)
{
    PyObject *made = PyList_New(0), *whole;
    for (int p = 0; made != NULL && p < self->n; p++) {
        PyObject *pair;
        if (self->parts[p].state != ASKING) continue;
        pair = Py_BuildValue("(iN)", p, request_readings(self->items->image, session_of(self, p)));
        if (pair == NULL || PyList_Append(made, pair) < 0) Py_CLEAR(made);
        Py_XDECREF(pair);
    }
    whole = made == NULL ? NULL : PyList_AsTuple(made);
    Py_XDECREF(made);
    return instance(self->items->need_replies, &name_requests, &whole, 1);
}

static int32_t confidence_at(const table *t, int32_t gap)
{
    Py_ssize_t k = 0;
    while (k < t->n_margins && t->margins[k] <= gap) k++;
    return t->confidences[k];
}

static PyObject *bought_outside(const ItemSession *self, const hc_session *s)
{
    Py_ssize_t n = 0;
    PyObject *made;
    for (int k = 0; k < self->items->image->n_sensors; k++) n += !self->items->is_inner[k] && hc_was_bought(s, k);
    made = PyTuple_New(n);
    n = 0;
    for (int k = 0; made != NULL && k < self->items->image->n_sensors; k++)
        if (!self->items->is_inner[k] && hc_was_bought(s, k)) PyTuple_SetItem(made, n++, PyLong_FromLong(k));
    return made;
}

static PyObject *make_decision(ItemSession *self)
{
    const Items *items = self->items;
    int is_known = items->of_part.n_margins || items->of_item.n_margins, route = HC_ROUTE_LOCAL, free;
    int64_t cost = 0, mean;
    int32_t least, confidence = 10000;
    PyObject *parts, *values[5];
    if (tell_all(self) < 0) return NULL;
    memset(self->gaps, 0, 4 * (size_t)self->n);
    hc_decode(&items->chain, self->scores, self->fixed, self->n, self->work, self->labels, is_known ? self->gaps : NULL);
    free = survey(self, &mean, &least);
    parts = PyTuple_New(self->n);
    for (int p = 0; parts != NULL && p < self->n; p++) {
        const hc_session *s = session_of(self, p);
        int is_fixed = self->fixed[p] != HC_NOT_FIXED;
        int32_t own = is_fixed ? s->confidence : confidence_at(&items->of_part, self->gaps[p]);
        PyObject *name = PyTuple_GetItem(items->image->route_names, s->route), *made;
        PyObject *of_part[7] = {PyLong_FromLong(self->labels[p]), PyLong_FromLong(own), name,
                                PyLong_FromLongLong(s->spent - s->saved), bought_outside(self, s),
                                tuple_of(s->steps, hc_visited, s), sensors_that(hc_has_failed, items->image, s)};
        Py_XINCREF(name);
        if (is_fixed && own < confidence) confidence = own;
        cost += s->spent - s->saved;
        if (s->route > route) route = s->route; /* degraded is above cloud, and cloud above local */
        made = instance(items->part_decision, names_part, of_part, 7);
        if (made == NULL) Py_CLEAR(parts);
        else PyTuple_SetItem(parts, p, made);
    }
    if (free) {
        int32_t own = confidence_at(&items->of_item, least);
        confidence = own < confidence ? own : confidence;
    }
    values[0] = parts;
    values[1] = PyLong_FromLong(confidence);
    values[2] = Py_NewRef(PyTuple_GetItem(items->image->route_names, route));
    values[3] = PyLong_FromLongLong(cost);
    values[4] = PyLong_FromLong(self->rounds);
    return instance(items->joint_decision, names_joint, values, 5);
}

/* ------------------------------------------------------------------ the protocol */

static PyObject *item_next_action(PyObject *object, PyObject *unused)
{
    ItemSession *self = (ItemSession *)object;
    (void)unused;
    while (self->action == NULL) {
        int n[5] = {0};
        for (int p = 0; p < self->n; p++) {
            if (self->parts[p].state == READY && advance(self, p) < 0) return NULL;
            n[self->parts[p].state]++;
        }
        self->kind = n[ASKED] ? SENSORS : n[ASKING] ? REPLIES : n[WAITING] ? NONE : DECIDED;
        if (self->kind == NONE) {
            if (release(self) < 0) return NULL;
            continue;
        }
        self->action = self->kind == SENSORS   ? make_need_parts(self)
                       : self->kind == REPLIES ? make_need_replies(self)
                                               : make_decision(self);
        if (self->action == NULL) return NULL;
    }
    return Py_NewRef(self->action);
}

static PyObject *wrong_readings(const ItemSession *self, PyObject *readings, PyObject *asked)
{
    PyObject *a = PySequence_List(readings), *b = PySequence_List(asked);
    if (a != NULL && b != NULL && PyList_Sort(b) == 0) {
        if (PyList_Sort(a) < 0) PyErr_Clear();
        PyErr_Format(self->items->error, "readings of %R were fed, %R were asked for", a, b);
    }
    Py_XDECREF(a), Py_XDECREF(b);
    return NULL;
}

static PyObject *item_feed(PyObject *object, PyObject *readings)
{
    ItemSession *self = (ItemSession *)object;
    PyObject *asked;
    Py_ssize_t n, k;
    if (self->action == NULL || self->kind != SENSORS)
        return PyErr_SetString(self->items->error,
                               "readings were fed, but the session did not ask for any; call next_action first"),
               NULL;
    asked = PyObject_GetAttr(self->action, name_sensors);
    if (asked == NULL) return NULL;
    n = PyTuple_Size(asked);
    for (k = 0; k < n && PyObject_Size(readings) == n && PySequence_Contains(readings, PyTuple_GetItem(asked, k)) == 1; k++) {}
    if (k < n && !PyErr_Occurred()) wrong_readings(self, readings, asked);
    for (k = 0; !PyErr_Occurred() && k < n; k++) {
        PyObject *key = PyTuple_GetItem(asked, k), *values = PyObject_GetItem(readings, key);
        int p = (int)PyLong_AsLong(PyTuple_GetItem(key, 0)), sensor = (int)PyLong_AsLong(PyTuple_GetItem(key, 1));
        if (values != NULL) feed_object(self->items->image, session_of(self, p), sensor, values, 0, -1);
        Py_XDECREF(values);
    }
    Py_DECREF(asked);
    if (PyErr_Occurred()) return NULL;
    for (int p = 0; p < self->n; p++) {
        if (self->parts[p].state != ASKED) continue;
        self->parts[p].state = READY;
        self->parts[p].spent = session_of(self, p)->spent;
    }
    self->reserved = 0;
    Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

/* The part about which something is reported, or -1 with an exception. */
static int part_asking(const ItemSession *self, PyObject *which)
{
    long p = PyLong_AsLong(which);
    if (p == -1 && PyErr_Occurred()) return -1;
    if (self->action != NULL && self->kind == REPLIES && p >= 0 && p < self->n && self->parts[p].state == ASKING)
        return (int)p;
    return PyErr_Format(self->items->error, "a reply came for part %ld, but the session did not ask for one", p), -1;
}

static PyObject *answered(ItemSession *self, int p)
{
    int is_open = 0;
    self->parts[p].state = READY;
    for (int k = 0; k < self->n; k++) is_open |= self->parts[k].state == ASKING;
    if (!is_open) Py_CLEAR(self->action);
    Py_RETURN_NONE;
}

static PyObject *item_reply(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    ItemSession *self = (ItemSession *)object;
    int64_t result, confidence;
    int p, beyond, too;
    if (n_args != 3) return PyErr_SetString(PyExc_TypeError, "reply takes a part, a result and a confidence"), NULL;
    if ((p = part_asking(self, args[0])) < 0) return NULL;
    result = to_i64(args[1], &beyond), confidence = to_i64(args[2], &too);
    if (PyErr_Occurred()) return NULL;
    if (beyond || confidence < 0 || confidence > 10000 || hc_reply(session_of(self, p), result, (int)confidence) < 0)
        return PyErr_Format(self->items->image->error, "a reply of class %S, confidence %S; there are %S classes",
                            args[1], args[2], self->items->image->n_classes);
    self->fixed[p] = (int32_t)result;
    return answered(self, p);
}

static PyObject *item_no_reply(PyObject *object, PyObject *which)
{
    ItemSession *self = (ItemSession *)object;
    int p = part_asking(self, which);
    if (p < 0) return NULL;
    hc_no_reply(session_of(self, p));
    return answered(self, p);
}

static PyObject *item_resend(PyObject *object, PyObject *which)
{
    ItemSession *self = (ItemSession *)object;
    int p = part_asking(self, which), may;
    if (p < 0) return NULL;
    if (self->budget != HC_NO_BUDGET) hc_afford(session_of(self, p), left(self));
    may = hc_resend(session_of(self, p));
    self->parts[p].spent = session_of(self, p)->spent;
    return PyBool_FromLong(may);
}

static void item_free(PyObject *object)
{
    ItemSession *self = (ItemSession *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->action), Py_XDECREF(self->costs), Py_XDECREF((PyObject *)self->items);
    PyMem_Free(self->sessions);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* One block holds all sessions, and behind them scores, parts and numbers of parts. */
static int allocate(ItemSession *self, size_t n)
{
    size_t k = (size_t)self->items->chain.labels, work = HC_CHAIN_WORK(n, k);
    self->stride = (self->items->image->session_bytes + 7) & ~(size_t)7;
    self->sessions = PyMem_Calloc(1, self->stride * (n + 1) + 8 * (n * k + work) + n * (sizeof(part) + 12));
    if (self->sessions == NULL) return PyErr_NoMemory(), -1;
    self->scores = (int64_t *)(self->sessions + self->stride * (n + 1));
    self->work = self->scores + n * k;
    self->parts = (part *)(self->work + work);
    self->fixed = (int32_t *)(self->parts + n);
    self->labels = self->fixed + n;
    self->gaps = self->labels + n;
    return 0;
}

static PyObject *items_session(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Items *items = (Items *)object;
    ItemSession *self;
    options o;
    long n;
    int overflow;
    if (n_args != 1) return PyErr_SetString(PyExc_TypeError, "a session takes the number of parts, and keywords"), NULL;
    if (read_options(&o, args + 1, names, 0) < 0) return NULL;
    n = PyLong_AsLong(args[0]);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (n < 1 || n > items->most_parts)
        return PyErr_Format(items->error, "an item of %ld parts; this program decides 1 to %d", n, items->most_parts);
    self = (ItemSession *)PyType_GenericAlloc((PyTypeObject *)items->session_type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(object);
    self->items = items;
    self->n = (int)n;
    self->budget = HC_NO_BUDGET;
    if (o.budget != NULL && o.budget != Py_None) self->budget = to_i64(o.budget, &overflow);
    if (PyErr_Occurred() || allocate(self, (size_t)n) < 0) goto failed;
    if (start_session(session_of(self, 0), items->image, &o) < 0) goto failed;
    for (int p = 1; p < self->n; p++) memcpy(session_of(self, p), session_of(self, 0), items->image->session_bytes);
    for (int p = 0; p < self->n; p++) self->fixed[p] = HC_NOT_FIXED;
    if (self->budget != HC_NO_BUDGET) {
        self->costs = PyObject_CallFunction(items->costs, "O", o.item_size == NULL ? Py_None : o.item_size);
        if (self->costs == NULL) goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* ------------------------------------------------------------------ Items */

static int read_table(table *t, const int32_t **at, Py_ssize_t *words_left)
{
    Py_ssize_t n = *words_left > 0 ? **at : -1;
    if (n < 0 || *words_left < 2 * n + 2) return -1;
    t->n_margins = n;
    t->margins = *at + 1;
    t->confidences = *at + 1 + n;
    *at += 2 * n + 2;
    *words_left -= 2 * n + 2;
    return 0;
}

static void *copy_of(const char *data, Py_ssize_t n_bytes)
{
    void *made = PyMem_Malloc((size_t)n_bytes + 8);
    if (made == NULL) PyErr_NoMemory();
    else memcpy(made, data, (size_t)n_bytes);
    return made;
}

static PyObject *items_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Items *self = (Items *)PyType_GenericAlloc(type, 0);
    PyObject *image, *settings, *records;
    const int32_t *at;
    char *numbers, *nodes, *tables, *inner;
    Py_ssize_t n_numbers, n_nodes, n_tables, n_inner;
    int k;
    if (self == NULL) return NULL;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Items takes no keywords");
        goto failed;
    }
    if (!PyArg_ParseTuple(args, "O!y#y#O!y#O!:Items", type_of_images, &image, &numbers, &n_numbers, &nodes, &n_nodes, &PyTuple_Type,
                          &settings, &tables, &n_tables, &PyTuple_Type, &records) ||
        !PyArg_ParseTuple(settings, "iipLy#O", &k, &self->most_parts, &self->is_anytime, &self->threshold, &inner, &n_inner,
                          &self->costs))
        goto failed;
    Py_INCREF(self->costs);
    if (!PyArg_ParseTuple(records, "OOOOO", &self->need_parts, &self->need_replies, &self->part_decision,
                          &self->joint_decision, &self->error)) {
        self->need_parts = self->need_replies = self->part_decision = self->joint_decision = self->error = NULL;
        goto failed;
    }
    Py_INCREF(self->need_parts), Py_INCREF(self->need_replies), Py_INCREF(self->part_decision);
    Py_INCREF(self->joint_decision), Py_INCREF(self->error);
    self->session_type = PyObject_GetAttrString((PyObject *)type, "Session");
    if (self->session_type == NULL) goto failed;
    Py_INCREF(image);
    self->image = (Image *)image;
    self->numbers = copy_of(numbers, n_numbers);
    self->nodes = copy_of(nodes, n_nodes);
    self->words = copy_of(tables, n_tables);
    self->is_inner = copy_of(inner, n_inner);
    if (self->numbers == NULL || self->nodes == NULL || self->words == NULL || self->is_inner == NULL) goto failed;
    at = self->words;
    n_tables /= 4;
    if (k < 2 || k > 32767 || self->most_parts < 1 || self->most_parts > 1024 || n_inner != self->image->n_sensors ||
        n_nodes != 4 * NODE * (Py_ssize_t)hc_nodes(self->image->bytes) ||
        n_numbers != 8 * (Py_ssize_t)k * (k + 2) || read_table(&self->of_part, &at, &n_tables) < 0 ||
        read_table(&self->of_item, &at, &n_tables) < 0) {
        PyErr_SetString(PyExc_ValueError, "these numbers are no joint program");
        goto failed;
    }
    for (Py_ssize_t s = 0; s < n_inner; s++)
        if (self->is_inner[s] && (self->image->sensors[s].count != FEATURES || self->image->sensors[s].bytes != 4 * FEATURES)) {
            PyErr_SetString(PyExc_ValueError, "an inner sensor has other features");
            goto failed;
        }
    self->chain.labels = k;
    self->chain.transitions = self->numbers;
    self->chain.start = self->numbers + (size_t)k * (size_t)k;
    self->chain.stop = self->chain.start + k;
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void items_free(PyObject *object)
{
    Items *self = (Items *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(self->numbers), PyMem_Free(self->nodes), PyMem_Free(self->words), PyMem_Free(self->is_inner);
    Py_XDECREF((PyObject *)self->image), Py_XDECREF(self->costs), Py_XDECREF(self->need_parts);
    Py_XDECREF(self->need_replies), Py_XDECREF(self->part_decision), Py_XDECREF(self->joint_decision);
    Py_XDECREF(self->error), Py_XDECREF(self->session_type);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef item_methods[] = {
    {"next_action", item_next_action, METH_NOARGS, NULL},
    {"feed", item_feed, METH_O, NULL},
    {"reply", (PyCFunction)(void (*)(void))item_reply, METH_FASTCALL, NULL},
    {"no_reply", item_no_reply, METH_O, NULL},
    {"resend", item_resend, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef items_methods[] = {
    {"session", (PyCFunction)(void (*)(void))items_session, METH_FASTCALL | METH_KEYWORDS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot item_slots[] = {{Py_tp_dealloc, item_free}, {Py_tp_methods, item_methods}, {0, NULL}};
static PyType_Slot items_slots[] = {
    {Py_tp_new, items_new}, {Py_tp_dealloc, items_free}, {Py_tp_methods, items_methods}, {0, NULL}};
static PyType_Spec item_spec = {"hardcase_edge._kernel.ItemSession", sizeof(ItemSession), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, item_slots};
static PyType_Spec items_spec = {"hardcase_edge._kernel.Items", sizeof(Items), 0, Py_TPFLAGS_DEFAULT, items_slots};

int add_items(PyObject *module, PyObject *image_type)
{
    static const char *const of_part[7] = {"label", "confidence", "route", "cost", "sensors", "trace", "failed"};
    static const char *const of_item[5] = {"parts", "confidence", "route", "cost", "rounds"};
    PyObject *session = PyType_FromSpec(&item_spec), *items = PyType_FromSpec(&items_spec);
    int added = -1;
    type_of_images = Py_NewRef(image_type);
    name_sensors = PyUnicode_InternFromString("sensors");
    name_requests = PyUnicode_InternFromString("requests");
    for (int k = 0; k < 7; k++) names_part[k] = PyUnicode_InternFromString(of_part[k]);
    for (int k = 0; k < 5; k++) names_joint[k] = PyUnicode_InternFromString(of_item[k]);
    if (session != NULL && items != NULL && !PyErr_Occurred() && PyObject_SetAttrString(items, "Session", session) == 0)
        added = PyModule_AddObjectRef(module, "Items", items);
    Py_XDECREF(session), Py_XDECREF(items);
    return added;
}
