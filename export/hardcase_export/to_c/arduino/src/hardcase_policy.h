/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel (hardcase.h is its manual) and the tables of the policy; include it in one file of your sketch. */
#ifndef HARDCASE_POLICY_H
#define HARDCASE_POLICY_H

#include <limits.h>

#if UINT_MAX < 0xFFFFFFFF
#error "hardcase needs integers of 32 bits and doubles of 64, which an AVR has not; take a board with a 32-bit processor"
#endif

#include "model.h"

#endif
