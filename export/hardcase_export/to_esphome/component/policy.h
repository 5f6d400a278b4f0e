/* SPDX-License-Identifier: Apache-2.0 */
/* What policy.c, made by hardcase export --esphome, knows of the policy. */
#pragma once

#include "hardcase.h"

#ifdef __cplusplus
extern "C" {
#endif

const void *hardcase_image(void);
hc_session *hardcase_session(void); /* of one decision at a time */
const char *hardcase_label(int64_t result);
double hardcase_value(int64_t result); /* in the target's unit; of a policy that answers values */
int hardcase_golden(int *right);       /* replays the golden cases in the session: how many there are, and are right */

#ifdef __cplusplus
}
#endif
