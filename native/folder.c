/* The states of the files of a folder, in the form of record/receipt/index.py: for 100,000 files Python takes
 * twice as long as the system calls themselves.
 */
#if !defined(_WIN32)
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(__APPLE__)
#define MTIME(s) (s).st_mtimespec
#define CTIME(s) (s).st_ctimespec
#else
#define MTIME(s) (s).st_mtim
#define CTIME(s) (s).st_ctim
#endif

enum { MAX_DIGITS = 24, MAX_NUMBERS_BYTES = 5 * MAX_DIGITS };

static int may_be_receipt_name(const char *name, size_t length) {
    return name[0] != '.' && length >= 5 && memcmp(name + length - 5, ".json", 5) == 0;
}

static int read_receipt_names(DIR *folder, char **names, size_t *used) {
    size_t capacity = 0;
    struct dirent *item;
    while (errno = 0, (item = readdir(folder)) != NULL) {
        size_t length = strlen(item->d_name);
        if (!may_be_receipt_name(item->d_name, length)) continue;
        if (*used + length + 1 > capacity) {
            capacity = 2 * capacity + length + 4096;
            char *grown = realloc(*names, capacity);
            if (grown == NULL) return ENOMEM;
            *names = grown;
        }
        memcpy(*names + *used, item->d_name, length + 1);
        *used += length + 1;
    }
    return errno;
}

/* List the names of `folder` that may be receipts, each NUL-terminated, `used` bytes in all. Returns an errno; if it
 * is 0, `*fd` is the open folder, and the caller passes `*fd` and `*names` to samerun_folder_close. */
EXPORT int samerun_folder_open(const char *folder, int *fd, char **names, size_t *used) {
    *names = NULL, *used = 0;
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return errno;
    int duplicate = fcntl(*fd, F_DUPFD_CLOEXEC, 0); /* closedir closes the descriptor that it was given */
    DIR *open_folder = duplicate < 0 ? NULL : fdopendir(duplicate);
    int error = open_folder == NULL ? errno : read_receipt_names(open_folder, names, used);
    if (open_folder != NULL) closedir(open_folder);
    else if (duplicate >= 0) close(duplicate);
    if (error != 0) {
        free(*names);
        close(*fd);
    }
    return error;
}

EXPORT void samerun_folder_close(int fd, char *names) {
    free(names);
    close(fd);
}

static char *append_number(char *at, int64_t value) {
    char digits[MAX_DIGITS];
    int count = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    *at++ = '/';
    if (value < 0) *at++ = '-';
    do digits[count++] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    while (count > 0) *at++ = digits[--count];
    return at;
}

static int64_t to_nanoseconds(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

/* Stat the names from `*at` on, until `room` bytes of `out` or `most` names are used up. Writes a NUL-terminated state
 * for each regular file and advances `*at`; `*wrote`: bytes written. Returns an errno. */
EXPORT int samerun_folder_stat(int fd, const char *names, size_t used, size_t *at, int most, char *out, size_t room,
                               size_t *wrote) {
    char *end = out;
    for (; most > 0 && *at < used; most--) {
        const char *name = names + *at;
        size_t length = strlen(name);
        if ((size_t)(end - out) + length + MAX_NUMBERS_BYTES > room) break;
        *at += length + 1;
        struct stat info;
        if (fstatat(fd, name, &info, 0) != 0) {
            if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)
                continue; /* deleted meanwhile, or a dangling link */
            return errno;
        }
        if (!S_ISREG(info.st_mode)) continue;
        memcpy(end, name, length);
        end = append_number(end + length, to_nanoseconds(MTIME(info)));
        end = append_number(end, (int64_t)info.st_size);
        end = append_number(end, to_nanoseconds(CTIME(info)));
        *end++ = 0;
    }
    *wrote = (size_t)(end - out);
    return 0;
}
#endif
