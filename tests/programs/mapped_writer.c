/* mapped_writer FILE START LENGTH SEED: writes pieces of a file through a shared mapping, until it is killed. Before a piece it
 * prints "W OFFSET LENGTH BYTE", and after msync(2) has succeeded "S". */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t state;
static uint64_t below(uint64_t end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % end;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    uint64_t start = strtoull(words[2], 0, 10), length = strtoull(words[3], 0, 10);
    state = strtoull(words[4], 0, 10);
    int fd = open(words[1], O_RDWR);
    struct stat found;
    if (fd < 0 || fstat(fd, &found)) return perror(words[1]), 1;
    char *bytes = mmap(0, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) return perror("mmap"), 1;
    close(fd);
    for (;;) {
        uint64_t offset = below(length), size = 1 + below(length - offset);
        int byte = below(256);
        printf("W %llu %llu %d\n", (unsigned long long)(start + offset), (unsigned long long)size, byte);
        fflush(stdout);
        memset(bytes + start + offset, byte, size);
        if (below(3) == 0) {
            if (msync(bytes, found.st_size, MS_SYNC)) return perror("msync"), 1;
            printf("S\n");
            fflush(stdout);
        }
        usleep(below(3000));
    }
}
