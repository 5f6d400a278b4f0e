/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up of an emulated Cortex-M: the vector table, variables, main. What main prints, and its exit status, reach
 * the emulator's host by semihosting (newlib's librdimon). A fault ends with status 99 instead of hanging. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern char data_begin[], data_end[], data_source[], bss_begin[], bss_end[], stack_top[];
extern void initialise_monitor_handles(void);
extern int main(void);
void reset(void);
void fault(void);

typedef union {
    void *stack;
    void (*handler)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {stack_top},         {.handler = reset}, {.handler = fault}, {.handler = fault}, {.handler = fault},
    {.handler = fault},  {.handler = fault}, {NULL},             {NULL},             {NULL},
    {NULL},              {.handler = fault}, {.handler = fault}, {NULL},             {.handler = fault},
    {.handler = fault},
};

void reset(void)
{
    memcpy(data_begin, data_source, (size_t)(data_end - data_begin));
    memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the floating-point unit is off after a reset */
#endif
    initialise_monitor_handles();
    exit(main());
}

void fault(void)
{
    _Exit(99);
}
