/* mapped shared|private FILE: writes FILE to standard output out of a mapping; its pages were first touched
 * backwards with a stride, so that page faults come in no order that a read-ahead would guess. With `private`
 * the mapping is written to as well, which must not reach the file. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: mapped shared|private FILE\n");
        return 2;
    }
    int is_private = strcmp(argv[1], "private") == 0;
    int file = open(argv[2], O_RDONLY);
    struct stat info;
    if (file < 0 || fstat(file, &info) != 0) {
        perror(argv[2]);
        return 1;
    }
    int access = is_private ? PROT_READ | PROT_WRITE : PROT_READ;
    unsigned char *map = mmap(NULL, info.st_size, access, is_private ? MAP_PRIVATE : MAP_SHARED, file, 0);
    close(file); /* the mapping must outlive the descriptor */
    if (map == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    unsigned long sum = 0;
    for (off_t at = info.st_size - 1; at >= 0; at -= 3 * 4096 + 17) sum += map[at];
    if (is_private) {
        for (off_t at = 0; at < info.st_size; at += 5000) {
            map[at] ^= 0xff;
            map[at] ^= 0xff;
        }
    }
    if (fwrite(map, 1, info.st_size, stdout) != (size_t)info.st_size) {
        perror("write");
        return 1;
    }
    if (is_private) memset(map, 0, info.st_size); /* thrown away with the mapping */
    fprintf(stderr, "%lu\n", sum);
    return munmap(map, info.st_size);
}
