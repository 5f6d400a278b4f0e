/* SPDX-License-Identifier: Apache-2.0 */
/* What the exported sources take of Zephyr's kernel: printing, and a sleep that is a step to the next row of a test. */
#ifndef STUB_KERNEL_H
#define STUB_KERNEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define printk printf
#define K_SECONDS(seconds) (seconds)
int32_t k_sleep(int timeout);

#endif
