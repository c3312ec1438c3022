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

static int read_receipt_names_return_errno(DIR *folder, char **names, size_t *names_bytes) {
    size_t capacity = 0;
    struct dirent *item;
    while (errno = 0, (item = readdir(folder)) != NULL) {
        size_t length = strlen(item->d_name);
        if (!may_be_receipt_name(item->d_name, length)) continue;
        if (*names_bytes + length + 1 > capacity) {
            capacity = 2 * capacity + length + 4096;
            char *grown = realloc(*names, capacity);
            if (grown == NULL) return ENOMEM;
            *names = grown;
        }
        memcpy(*names + *names_bytes, item->d_name, length + 1);
        *names_bytes += length + 1;
    }
    return errno;
}

/* List the names of `folder` that may be receipts, each NUL-terminated, `names_bytes` bytes in all. Returns an
 * errno; if it is 0, `*fd` is the open folder, and the caller passes `*fd` and `*names` to
 * samerun_folder_close_and_free. */
EXPORT int samerun_folder_open_and_list_receipts(const char *folder, int *fd, char **names, size_t *names_bytes) {
    *names = NULL, *names_bytes = 0;
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return errno;
    int duplicate = fcntl(*fd, F_DUPFD_CLOEXEC, 0); /* closedir closes the descriptor that it was given */
    DIR *open_folder = duplicate < 0 ? NULL : fdopendir(duplicate);
    int error = open_folder == NULL ? errno : read_receipt_names_return_errno(open_folder, names, names_bytes);
    if (open_folder != NULL) closedir(open_folder);
    else if (duplicate >= 0) close(duplicate);
    if (error != 0) {
        free(*names);
        close(*fd);
    }
    return error;
}

EXPORT void samerun_folder_close_and_free(int fd, char *names) {
    free(names);
    close(fd);
}

static char *append_slash_and_number(char *out, int64_t value) {
    char digits[MAX_DIGITS];
    int count = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    *out++ = '/';
    if (value < 0) *out++ = '-';
    do digits[count++] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    while (count > 0) *out++ = digits[--count];
    return out;
}

static int64_t to_nanoseconds(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

/* Stat the names from `*at` on, until `out_bytes` bytes of `out` or `max_names` names are used up. Writes a
 * NUL-terminated state for each regular file and advances `*at`; `*wrote`: bytes written. Returns an errno. */
EXPORT int samerun_folder_stat_files_as_text(int fd, const char *names, size_t names_bytes, size_t *name_offset,
                                             int max_names, char *out, size_t out_bytes, size_t *written_bytes) {
    char *end = out;
    for (; max_names > 0 && *name_offset < names_bytes; max_names--) {
        const char *name = names + *name_offset;
        size_t length = strlen(name);
        if ((size_t)(end - out) + length + MAX_NUMBERS_BYTES > out_bytes) break;
        *name_offset += length + 1;
        struct stat info;
        if (fstatat(fd, name, &info, 0) != 0) {
            if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)
                continue; /* deleted meanwhile, or a dangling link */
            return errno;
        }
        if (!S_ISREG(info.st_mode)) continue;
        memcpy(end, name, length);
        end = append_slash_and_number(end + length, to_nanoseconds(MTIME(info)));
        end = append_slash_and_number(end, (int64_t)info.st_size);
        end = append_slash_and_number(end, to_nanoseconds(CTIME(info)));
        *end++ = 0;
    }
    *written_bytes = (size_t)(end - out);
    return 0;
}
#endif
