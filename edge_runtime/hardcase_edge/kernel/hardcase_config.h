/* SPDX-License-Identifier: Apache-2.0 */
/* What of the kernel is compiled: here, everything but code in place of tables. hardcase export --c writes this file anew,
 * with the parts that one policy needs; hardcase.h says what they are. */
#ifndef HARDCASE_CONFIG_H
#define HARDCASE_CONFIG_H

#define HC_PARTS (HC_ALL_PARTS & ~HC_INLINE)

#endif
