/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of items share: a joint program, an item of several parts, and how its parts are walked. */
#ifndef HARDCASE_PY_ITEMS_H
#define HARDCASE_PY_ITEMS_H

#include "chain.h"
#include "py_module.h"

enum { FEATURES = 12, NODE = 6 }; /* of the inner sensor, the last of which it may lack; numbers of a node in Items.nodes */
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

static inline hc_session *session_of(const ItemSession *self, int p)
{
    return (hc_session *)(self->sessions + self->stride * (size_t)p);
}

/* py_items.c: add Items and, as its attribute, ItemSession; -1 with an exception if that fails. */
int add_items(PyObject *module, PyObject *image_type);

/* py_item_session.c: the type ItemSession, and Items.session, which makes one. */
PyObject *make_item_session_type(void);
PyObject *items_session(PyObject *items, PyObject *const *args, Py_ssize_t n_args, PyObject *names);

/* py_item_records.c: intern the names of fields; -1 with an exception if that fails. */
int add_item_records(void);
PyObject *make_need_parts(const ItemSession *self);
PyObject *make_need_replies(const ItemSession *self);
PyObject *make_joint_decision(ItemSession *self);

/* py_item_parts.c: what the parts together may still spend. */
int64_t left_for_parts(const ItemSession *self);

/* Walk one part as far as it goes alone; -1 with an exception. */
int walk_part(ItemSession *self, int p);

/* All parts tell the chain what they know; -1 with an exception. */
int tell_all(ItemSession *self);

/* The least gap and the mean of the gaps of all parts that are not fixed; how many they are. */
int survey(const ItemSession *self, int64_t *mean, int32_t *least);

/* Decode, and let those parts go on that the release names; -1 with an exception. */
int release(ItemSession *self);

#endif
