/* Saves as programs with Qt's QSaveFile do: a new file next to the one that is saved gets its mode and the content, is made durable,
 * and takes its name. Where no new file can be made, the content is written into the file itself.
 *
 *     save_by_rename FILE <CONTENT
 *
 * Prints "renamed" or "direct". */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void fill(int fd) {
    char bytes[4096];
    ssize_t length;
    while ((length = read(0, bytes, sizeof bytes)) > 0)
        for (ssize_t done = 0, more; done < length; done += more)
            if ((more = write(fd, bytes + done, length - done)) < 0) fail("write");
    if (fsync(fd)) fail("fsync");
    if (close(fd)) fail("close");
}

int main(int count, char **words) {
    char fresh[PATH_MAX];
    struct stat old;
    if (count != 2 || stat(words[1], &old)) fail("save_by_rename FILE");
    snprintf(fresh, sizeof fresh, "%s.%c%cXq%02d", words[1], 'a' + getpid() % 26, 'K', getpid() / 26 % 100);
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        if ((fd = open(words[1], O_WRONLY | O_TRUNC | O_CLOEXEC)) < 0) fail("open");
        fill(fd);
        return puts("direct") < 0;
    }
    fchmod(fd, old.st_mode & 07777); /* Its result is not looked at there, either. */
    fill(fd);
    if (rename(fresh, words[1])) fail("rename");
    return puts("renamed") < 0;
}
