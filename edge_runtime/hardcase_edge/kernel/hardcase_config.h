/* What of the kernel is compiled: here, everything. hardcase export --c writes this file anew, with what one policy needs. */
#ifndef HARDCASE_CONFIG_H
#define HARDCASE_CONFIG_H

#define HC_POLYNOMIALS 1 /* linear and polynomial scorers */
#define HC_STACKS 1      /* linear scorers over single trees */
#define HC_INLINE 0      /* ensembles as code: hc_inline, in inline.c */

#endif
