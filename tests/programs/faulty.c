/* Preloaded into the daemon by tests: lets the Nth operation on the store fail, or be the daemon's last.
 *
 * (strace's inject counts per thread, and the daemon stores on threads that live for one close or fsync.) The file that
 * ZARRFS_TEST_FAULT names is shared with the test: 32-bit words as in tests/support/faulty.rs. Operations outside of the
 * folder ZARRFS_TEST_STORE are neither counted nor touched. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPERATION, ACTION, FIRST, LAST, FIRED, COUNTS = 8, WORDS = 16 };
enum { CREATE, WRITE, FDATASYNC, RENAME, FSYNC, MKDIR, UNLINK, READ };
enum { KILL = 1000, SKIP = 1001 };

static volatile uint32_t *words;
static char store[PATH_MAX];
static size_t store_length;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ZARRFS_TEST_FAULT"), *folder = getenv("ZARRFS_TEST_STORE");
    if (!path || !folder || !realpath(folder, store)) return;
    store_length = strlen(store);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *shared = mmap(NULL, WORDS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared != MAP_FAILED) words = shared;
}

static int is_inside(int fd) {
    char link[64], path[PATH_MAX];
    if (!words) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    return length >= (ssize_t)store_length && !memcmp(path, store, store_length);
}

/* What is to become of this operation: 0 is nothing, KILL, SKIP, or an errno. */
static int fate(int operation, int fd) {
    if (!is_inside(fd)) return 0;
    uint32_t number = __atomic_add_fetch(&words[COUNTS + operation], 1, __ATOMIC_SEQ_CST);
    int action = words[ACTION];
    if (!action || words[OPERATION] != (uint32_t)operation || number < words[FIRST] || number > words[LAST]) return 0;
    __atomic_add_fetch(&words[FIRED], 1, __ATOMIC_SEQ_CST);
    return action;
}

static int refused(int operation, int fd) {
    int action = fate(operation, fd);
    if (action == KILL) kill(getpid(), SIGKILL), pause();
    if (action) errno = action;
    return action;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    int action = words && fd > 2 ? fate(WRITE, fd) : 0;
    if (action) syscall(SYS_write, fd, bytes, length / 2); /* a torn file */
    if (action == KILL) kill(getpid(), SIGKILL), pause();
    if (action) return errno = action, -1;
    return syscall(SYS_write, fd, bytes, length);
}

ssize_t pread64(int fd, void *bytes, size_t length, off_t offset) {
    return words && refused(READ, fd) ? -1 : syscall(SYS_pread64, fd, bytes, length, offset);
}

static int synced(int operation, int call, int fd) {
    int action = refused(operation, fd);
    if (action) return action == SKIP ? 0 : -1;
    return syscall(call, fd);
}

int fdatasync(int fd) { return synced(FDATASYNC, SYS_fdatasync, fd); }

int fsync(int fd) { return synced(FSYNC, SYS_fsync, fd); }

static int is_unfinished(const char *name) { return !strncmp(name, ".zarrfs-", 8); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    /* An object that is given the name of an unfinished file is removed. */
    int operation = is_unfinished(new) && !is_unfinished(old) ? UNLINK : RENAME;
    return refused(operation, to) ? -1 : syscall(SYS_renameat2, from, old, to, new, flags);
}

int renameat(int from, const char *old, int to, const char *new) { return renameat2(from, old, to, new, 0); }

int mkdirat(int folder, const char *name, mode_t mode) {
    return refused(MKDIR, folder) ? -1 : syscall(SYS_mkdirat, folder, name, mode);
}

int unlinkat(int folder, const char *name, int flags) {
    /* The removal of an unfinished file is part of failing. */
    if (!is_unfinished(name) && refused(UNLINK, folder)) return -1;
    return syscall(SYS_unlinkat, folder, name, flags);
}

int openat(int folder, const char *name, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        if (flags & O_CREAT && folder != AT_FDCWD && refused(CREATE, folder)) return -1;
    }
    return syscall(SYS_openat, folder, name, flags, mode);
}
