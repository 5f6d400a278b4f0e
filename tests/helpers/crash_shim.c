/* SPDX-License-Identifier: Apache-2.0
 * Ends the process at a chosen call that changes files, for tests; loaded in front of libc by LD_PRELOAD.
 *
 *   crash_arm(at, mode)   from now on count calls; end the process in place of call number `at`, from 1 (0: never)
 *   crash_disarm()        count no more
 *   crash_now()           end the process here
 *   crash_count()         calls so far
 *   crash_kind(k)         of call number k: 1 if it is a write, 2 if some bytes were not flushed before it, 3 if both
 *
 * Modes: KILL ends the process before the call. TORN does half of a write first. POWER is a power cut: a file whose
 * bytes were not flushed is empty afterwards. (A file's real flush is left out: the page cache outlives a process.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL, TORN, POWER, MAX_DIRTY = 512, MAX_CALLS = 4096, STATUS = 99, FIRST_FD = 400 };

static int armed, mode;
static long calls, last;
static struct { dev_t dev; ino_t ino; int fd; } dirty[MAX_DIRTY];
static int n_dirty;
static char kinds[MAX_CALLS];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void crash_arm(long at, int how) { armed = 1, calls = 0, last = at, mode = how; }
void crash_disarm(void) { armed = 0; }
long crash_count(void) { return calls; }
int crash_kind(long k) { return k < MAX_CALLS ? kinds[k] : 0; }

static void end(void) {
    if (mode == POWER)
        for (int k = 0; k < n_dirty; k++) syscall(SYS_ftruncate, dirty[k].fd, (off_t)0);
    syscall(SYS_exit_group, STATUS);
}

static int is_next(int is_write) {
    if (++calls < MAX_CALLS) kinds[calls] = is_write + 2 * (n_dirty > 0);
    return calls == last;
}

/* Counts a call; ends the process if it is the chosen one. */
static void point(void) {
    if (armed && is_next(0)) end();
}

void crash_now(void) { end(); }

static int find(int fd, struct stat *s) {
    if (fstat(fd, s) != 0 || !S_ISREG(s->st_mode)) return -2;
    for (int k = 0; k < n_dirty; k++)
        if (dirty[k].dev == s->st_dev && dirty[k].ino == s->st_ino) return k;
    return -1;
}

static void written(int fd) {
    struct stat s;
    if (!armed || mode != POWER || find(fd, &s) != -1 || n_dirty == MAX_DIRTY) return;
    dirty[n_dirty].dev = s.st_dev, dirty[n_dirty].ino = s.st_ino;
    dirty[n_dirty++].fd = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
}

static void flushed(int fd) {
    struct stat s;
    int k = armed ? find(fd, &s) : -1;
    if (k < 0) return;
    syscall(SYS_close, dirty[k].fd);
    dirty[k] = dirty[--n_dirty];
}

ssize_t write(int fd, const void *data, size_t n) {
    struct stat s;
    if (armed && find(fd, &s) > -2) {
        if (is_next(1)) {
            if (mode == TORN && n > 1) syscall(SYS_write, fd, data, n / 2);
            end();
        }
        written(fd);
    }
    return REAL(write)(fd, data, n);
}

ssize_t sendfile(int out, int in, off_t *at, size_t n) { point(); written(out); return REAL(sendfile)(out, in, at, n); }
ssize_t copy_file_range(int a, off64_t *i, int b, off64_t *j, size_t n, unsigned f) {
    point(); written(b);
    return REAL(copy_file_range)(a, i, b, j, n, f);
}
int fsync(int fd) { point(); flushed(fd); return 0; }
int fdatasync(int fd) { return fsync(fd); }

#define OPENS (O_CREAT | O_TRUNC)
#define MODE_OF(flags) mode_t m = 0; if ((flags) & OPENS) { va_list a; va_start(a, flags); m = va_arg(a, mode_t); va_end(a); point(); }
int open(const char *p, int flags, ...) { MODE_OF(flags) return REAL(open)(p, flags, m); }
int open64(const char *p, int flags, ...) { MODE_OF(flags) return REAL(open64)(p, flags, m); }
int openat(int d, const char *p, int flags, ...) { MODE_OF(flags) return REAL(openat)(d, p, flags, m); }
int openat64(int d, const char *p, int flags, ...) { MODE_OF(flags) return REAL(openat64)(d, p, flags, m); }

#define CALL(name, declared, passed) int name declared { point(); return REAL(name) passed; }
CALL(rename, (const char *a, const char *b), (a, b))
CALL(renameat, (int c, const char *a, int d, const char *b), (c, a, d, b))
CALL(renameat2, (int c, const char *a, int d, const char *b, unsigned f), (c, a, d, b, f))
CALL(link, (const char *a, const char *b), (a, b))
CALL(linkat, (int c, const char *a, int d, const char *b, int f), (c, a, d, b, f))
CALL(symlink, (const char *a, const char *b), (a, b))
CALL(symlinkat, (const char *a, int d, const char *b), (a, d, b))
CALL(unlink, (const char *a), (a))
CALL(unlinkat, (int d, const char *a, int f), (d, a, f))
CALL(rmdir, (const char *a), (a))
CALL(mkdir, (const char *a, mode_t m), (a, m))
CALL(mkdirat, (int d, const char *a, mode_t m), (d, a, m))
CALL(chmod, (const char *a, mode_t m), (a, m))
CALL(fchmod, (int d, mode_t m), (d, m))
CALL(fchmodat, (int d, const char *a, mode_t m, int f), (d, a, m, f))
CALL(truncate, (const char *a, off_t n), (a, n))
CALL(ftruncate, (int d, off_t n), (d, n))
