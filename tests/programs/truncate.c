/* truncate.c FILE HOW: cuts FILE short and writes it in ways that no shell command has. Prints the errno of the first failure. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int done(const char *what, int failed) {
    if (failed) printf("%s %d\n", what, errno);
    return failed;
}

int main(int count, char **words) {
    struct stat info;
    char block[100];
    if (count != 3 || stat(words[1], &info)) return 2;
    memset(block, 'c', sizeof block);
    int file = open(words[1], O_RDWR | O_TRUNC);
    if (done("open", file < 0)) return 1;
    if (!strcmp(words[2], "mapped")) {
        if (done("ftruncate", ftruncate(file, info.st_size))) return 1;
        char *map = mmap(NULL, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (done("mmap", map == MAP_FAILED)) return 1;
        memset(map + 10, 'c', 100);
        munmap(map, info.st_size);
    } else if (!strcmp(words[2], "sparse")) {
        if (done("pwrite", pwrite(file, block, 100, 5000) != 100)) return 1;
        char after[10], before[10];
        if (done("pread", pread(file, before, 10, 4990) != 10 || pread(file, after, 10, 5100) != 10)) return 1;
        if (memcmp(before, "\0\0\0\0\0\0\0\0\0\0", 10) || memcmp(after, "oooooooooo", 10)) printf("read wrong\n");
        if (done("ftruncate", ftruncate(file, info.st_size))) return 1;
    } else if (!strcmp(words[2], "allocated")) {
        if (done("fallocate", fallocate(file, 0, 0, info.st_size))) return 1;
        if (done("pwrite", pwrite(file, block, 100, 0) != 100)) return 1;
    } else if (!strcmp(words[2], "cut")) {
        if (done("pwrite", pwrite(file, block, 100, 0) != 100)) return 1;
        if (done("ftruncate", ftruncate(file, 50))) return 1;
        if (done("pwrite", pwrite(file, block, 1, 60) != 1)) return 1;
    }
    int failed = done("fsync", fsync(file));
    return done("close", close(file)) | failed;
}
