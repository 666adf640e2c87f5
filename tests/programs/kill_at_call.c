/* Kills a daemon at the Nth system call that it begins after it has received a request. The call is not carried out.
 *
 * kill_at_call PID N         counts from the first request that the process receives
 * kill_at_call PID N next    counts from the first call of the next process that PID makes: the next daemon of a keeper
 *
 * (strace's inject counts per thread, and a request passes from thread to thread.) Prints "attached", then "killed N CALL", or "calls N"
 * if it is ended by SIGTERM before that. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const long OPTIONS =
    PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
static volatile sig_atomic_t is_over;

static void end(int signal) {
    (void)signal;
    is_over = 1;
}

/* Attaches to all threads of a process. Returns how many. */
static int attach(pid_t pid) {
    char path[64];
    int attached = 0, found = 1;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    while (found) {
        found = 0;
        DIR *tasks = opendir(path);
        if (!tasks) return 0;
        for (struct dirent *task; (task = readdir(tasks));) {
            int thread = atoi(task->d_name);
            if (thread > 0 && !ptrace(PTRACE_SEIZE, thread, 0, OPTIONS)) {
                ptrace(PTRACE_INTERRUPT, thread, 0, 0);
                attached++, found = 1;
            }
        }
        closedir(tasks);
    }
    return attached;
}

static int is_device(pid_t thread, unsigned long long file) {
    char link[64], path[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%llu", thread, file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length == 9 && !memcmp(path, "/dev/fuse", 9);
}

/* The thread group of a thread. */
static pid_t group(pid_t thread) {
    char path[64], line[128];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *status = fopen(path, "r");
    if (!status) return 0;
    while (fgets(line, sizeof line, status) && sscanf(line, "Tgid: %d", &found) != 1) {
    }
    fclose(status);
    return found;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pid_t pid = atoi(argv[1]), counted = argc > 3 ? 0 : pid;
    long when = atol(argv[2]), calls = 0;
    int is_counting = 0, is_killed = 0;
    struct sigaction on_end = {.sa_handler = end};
    sigaction(SIGTERM, &on_end, NULL);
    int starting = attach(pid);
    if (!starting) {
        perror("PTRACE_SEIZE");
        return 1;
    }
    while (!is_over) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) break;
        if (!WIFSTOPPED(status)) {
            if (is_killed && thread == counted) break;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16, passed = 0;
        pid_t process = group(thread);
        int is_counted = counted && process == counted;
        if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
            unsigned long made = 0;
            ptrace(PTRACE_GETEVENTMSG, thread, 0, &made);
            if (!counted && process == pid && group(made) == (pid_t)made) counted = made, is_counting = 1;
        } else if (event == PTRACE_EVENT_STOP) {
            if (starting && !--starting) puts("attached"), fflush(stdout);
            if (!counted && process != pid) counted = process, is_counting = 1;
            is_counted = counted && process == counted;
        } else if (signal == (SIGTRAP | 0x80)) {
            struct __ptrace_syscall_info info;
            ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
            static unsigned long long files[1 << 16], numbers[1 << 16];
            unsigned slot = (unsigned)thread & 0xffff;
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                numbers[slot] = info.entry.nr, files[slot] = info.entry.args[0];
                if (is_counted && is_counting && !is_killed && ++calls == when) {
                    kill(counted, SIGKILL);
                    is_killed = 1;
                    printf("killed %ld %llu\n", calls, (unsigned long long)info.entry.nr), fflush(stdout);
                    continue;
                }
            } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && !is_counting && info.exit.rval > 0 &&
                       numbers[slot] == SYS_read && is_device(thread, files[slot])) {
                is_counting = is_counted;
            }
        } else if (!event) {
            passed = signal;
        }
        ptrace(is_counted ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, passed);
    }
    if (!is_killed) printf("calls %ld\n", calls);
    return 0;
}
