/* write_mapped < JOBS: writes files through shared mappings. A job is four strings, each ended by NUL: the FILE to write, a
 * file with its whole NEW content, a file of the same size from which PIECES ("OFFSET+LENGTH,...") are then taken, PIECES.
 * The mapping is written from the end to the start; every other job calls msync, the rest leave it to munmap. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 4096 + 17 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static unsigned char *mapped(const char *path, int is_written, size_t *size) {
    int file = open(path, is_written ? O_RDWR : O_RDONLY);
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0) fail(path);
    *size = info.st_size;
    unsigned char *map = NULL;
    if (*size > 0) map = mmap(NULL, *size, is_written ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) fail(path);
    close(file); /* the mapping must outlive the descriptor */
    return map;
}

int main(void) {
    char *field[4] = {0};
    size_t room[4] = {0};
    for (unsigned long job = 0;; job++) {
        for (int i = 0; i < 4; i++) {
            if (getdelim(&field[i], &room[i], 0, stdin) < 0) return i != 0 || ferror(stdin);
        }
        size_t size, size_new, size_second;
        unsigned char *map = mapped(field[0], 1, &size);
        unsigned char *new = mapped(field[1], 0, &size_new), *second = mapped(field[2], 0, &size_second);
        if (size != size_new || size != size_second) {
            fprintf(stderr, "%s has %zu bytes, not %zu\n", field[0], size, size_new);
            return 1;
        }
        if (size == 0) continue;
        for (size_t end = size; end > 0; end -= end < STEP ? end : STEP) {
            size_t start = end < STEP ? 0 : end - STEP;
            memcpy(map + start, new + start, end - start);
        }
        for (char *piece = strtok(field[3], ","); piece; piece = strtok(NULL, ",")) {
            char *plus;
            size_t start = strtoul(piece, &plus, 10), length = strtoul(plus + 1, NULL, 10);
            memcpy(map + start, second + start, length);
        }
        if (job % 2 && msync(map, size, MS_SYNC) != 0) fail("msync");
        if (munmap(map, size) || munmap(new, size) || munmap(second, size)) fail("munmap");
    }
}
