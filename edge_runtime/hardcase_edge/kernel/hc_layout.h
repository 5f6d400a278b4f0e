/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of an image: its kinds, and the words of its records by name (docs/SPEC-image-v1.md).
 * Made of kernel/layout.py by make golden; edit that table. */
#ifndef HARDCASE_LAYOUT_H
#define HARDCASE_LAYOUT_H

#define MAGIC 0x31494348u /* HCI1 */
#define MAGIC_MORE 0x32494348u /* HCI2 */
#define NOT_SENT 0xffffu /* the place of a feature that requests do not carry */
enum { STRUCT_BYTES = 64, COLUMN_IS_WIDE = 1, NETWORK_WINDOWS = 4, COLUMN_TYPE = 1 };

/* The declared type of a reading. */
enum type { I32, F32, F64 };
/* How the kernel may feed a sensor faster; 0: in no such way. */
enum plain { ALL_I32 = 1, ALL_F32, ALL_DIRECT };
/* How a reading becomes the value of a cell. */
enum rule { AFFINE, RANK, DIRECT, COPY };
/* The kind of a scorer. */
enum scorer { POLYNOMIAL, TREES, STACK, INLINED, LEAF, NETWORK };
/* The kind of a layer, as in the program. */
enum layer_kind { CONV, DEPTHWISE, AVERAGE, LARGEST };
/* How the trees of a group lie. */
enum layout { SMALL_HEAP, WIDE_HEAP, SMALL_POINTERS, WIDE_POINTERS };
/* The kind of a node. */
enum node { ACQUIRE, BRANCH, SELECT, ANSWER, FORWARD };
/* The rule of a branch, as in the program. */
enum branch_rule { THRESHOLD, MARGIN, ARGMAX, TOURNAMENT };

/* Words of the header. */
enum header {
    H_MAGIC, H_IMAGE_BYTES, H_SESSION_BYTES, H_FEATURES, H_SENSORS, H_COLUMNS, H_SCORERS, H_NODES, H_CLASSES,
    H_ITEM_SIZE, H_AT_FEATURES, H_AT_SENSORS, H_AT_COLUMNS, H_AT_SCORERS, H_AT_NODES, H_REQUEST_BYTES, H_REQUEST_COST,
    H_SMALL_LEFT = 18, H_SMALL, H_WIDE_LEFT, H_WIDE, H_STEPS, H_ENTRANTS, H_WORDS
};
/* Words of the header that say where the parts of a session lie in its memory, in this order. */
enum part { S_SCORES = H_WORDS, S_REQUEST, S_WIDE, S_TRACE, S_WINNERS, S_SENSORS, S_IS_SCORED, S_SMALL, S_WORDS };
/* Words behind these in an image that begins with HCI2. */
enum more { M_START_COST = S_WORDS, M_WORDS = 34 };
/* Bytes of a feature. */
enum feature { FEATURE_UPLINK, FEATURE_TYPE = 2, FEATURE_NULLABLE, FEATURE_BYTES };
/* Words of a sensor. */
enum sensor {
    SENSOR_FEATURE, SENSOR_FEATURES, SENSOR_COLUMN, SENSOR_COLUMNS, SENSOR_COST, SENSOR_COSTS, SENSOR_SCORERS,
    SENSOR_SCORERS_COUNT, SENSOR_READING_BYTES, SENSOR_PLAIN, SENSOR_KEYS, SENSOR_WORDS
};
/* Bytes of a column. */
enum column {
    COLUMN_RULE, COLUMN_FLAGS, COLUMN_CELL, COLUMN_A = 4, COLUMN_B = 8, COLUMN_READING = 10, COLUMN_BYTES = 12
};
/* Bytes of the numbers of an affine rule, i64 each. */
enum affine {
    AFFINE_FRAC, AFFINE_MUL = 8, AFFINE_ADD = 16, AFFINE_SHIFT = 24, AFFINE_LOW = 32, AFFINE_HIGH = 40,
    AFFINE_BYTES = 48
};
/* Words with which each scorer begins. */
enum scorer_head { SCORER_KIND, SCORER_OUTPUTS, SCORER_FIRST, SCORER_WORDS };
/* Words of a polynomial. */
enum polynomial {
    POLYNOMIAL_COLUMNS = SCORER_WORDS, POLYNOMIAL_CELLS, POLYNOMIAL_SUBSTITUTES, POLYNOMIAL_TERMS, POLYNOMIAL_DEGREE,
    POLYNOMIAL_POSITIONS, POLYNOMIAL_WEIGHTS, POLYNOMIAL_WEIGHT_BYTES, POLYNOMIAL_BIAS, POLYNOMIAL_CONSTANT,
    POLYNOMIAL_WORDS
};
/* Words of an ensemble of trees; its groups follow. */
enum trees { TREES_BASE = SCORER_WORDS, TREES_GROUPS, TREES_WORDS };
/* Words of a group: trees that share a layout, a first output and a width. */
enum group { GROUP_LAYOUT, GROUP_OUTPUT, GROUP_WIDTH, GROUP_TREES, GROUP_DEPTH, GROUP_DATA, GROUP_WORDS };
/* Words of a tree with pointers. */
enum tree { TREE_NODES, TREE_LEAVES, TREE_COUNT, TREE_WORDS };
/* Words of a stack; its members follow. */
enum stack { STACK_MEMBERS = SCORER_WORDS, STACK_WEIGHTS, STACK_BIAS, STACK_WORDS };
/* Words of a member of a stack: a tree. */
enum member { MEMBER_SCORER, MEMBER_GROUP, MEMBER_TREE, MEMBER_WORDS };
/* Words of an ensemble that is code. */
enum inlined { INLINED_COUNT = SCORER_WORDS, INLINED_SENSORS, INLINED_WORDS };
/* Words of a tree that several stacks name. */
enum leaf { LEAF_TREES = SCORER_WORDS, LEAF_GROUP, LEAF_TREE, LEAF_WORDS };
/* Words of a network; its layers follow. */
enum network {
    NETWORK_COLUMNS = SCORER_WORDS, NETWORK_CELLS, NETWORK_SUBSTITUTES, NETWORK_LENT, NETWORK_WINDOW_BYTES,
    NETWORK_BYTES, NETWORK_HEIGHT, NETWORK_WIDTH, NETWORK_CHANNELS, NETWORK_ZERO_POINT, NETWORK_LAYERS, NETWORK_WORDS
};
/* Words of a layer. */
enum layer {
    LAYER_KIND, LAYER_WINDOW_HEIGHT, LAYER_WINDOW_WIDTH, LAYER_DOWN, LAYER_RIGHT, LAYER_ABOVE, LAYER_LEFT, LAYER_HEIGHT,
    LAYER_WIDTH, LAYER_CHANNELS, LAYER_ZERO_POINT, LAYER_LOW, LAYER_HIGH, LAYER_WEIGHTS, LAYER_BIAS, LAYER_MULTIPLIERS,
    LAYER_SHIFTS, LAYER_WORDS
};
/* Words with which each node begins. */
enum node_head { NODE_KIND, NODE_WORDS };
/* Words of an acquire or a forward; its sensors follow. */
enum acquire { BUY_THEN = NODE_WORDS, BUY_OTHERWISE, BUY_SENSORS, BUY_WORDS };
/* Words of a branch; its targets follow, then two entrants for each match of a tournament. */
enum branch {
    BRANCH_SCORER = NODE_WORDS, BRANCH_START, BRANCH_WIDTH, BRANCH_RULE, BRANCH_THRESHOLD, BRANCH_TARGETS, BRANCH_WORDS
};
/* Words of a select; its candidates follow. */
enum select { SELECT_OTHERWISE = NODE_WORDS, SELECT_CANDIDATES, SELECT_WORDS };
/* Words of a candidate. */
enum candidate { CANDIDATE_SIZE, CANDIDATE_TARGET, CANDIDATE_COST, CANDIDATE_COSTS, CANDIDATE_WORDS };
/* Words of an answer. */
enum answer {
    ANSWER_SCORER = NODE_WORDS, ANSWER_START, ANSWER_WIDTH, ANSWER_KIND, ANSWER_MARGINS, ANSWER_AT_MARGINS,
    ANSWER_AT_CONFIDENCES, ANSWER_WORDS
};

#endif
