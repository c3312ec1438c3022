/* The states of the files of a folder, as record/receipt/folder_state.py writes them: for 100,000 files Python needs
 * twice as long as the system does.
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
#define WRITTEN(s) (s).st_mtimespec
#define CHANGED(s) (s).st_ctimespec
#else
#define WRITTEN(s) (s).st_mtim
#define CHANGED(s) (s).st_ctim
#endif

enum { NUMBER = 24, MOST = 5 * NUMBER };

static int may_be_receipt(const char *name, size_t length) {
    return name[0] != '.' && length >= 5 && memcmp(name + length - 5, ".json", 5) == 0;
}

static int read_names(DIR *folder, char **names, size_t *used) {
    size_t room = 0;
    struct dirent *item;
    while (errno = 0, (item = readdir(folder)) != NULL) {
        size_t length = strlen(item->d_name);
        if (!may_be_receipt(item->d_name, length))
            continue;
        if (*used + length + 1 > room) {
            room = 2 * room + length + 4096;
            char *more = realloc(*names, room);
            if (more == NULL)
                return ENOMEM;
            *names = more;
        }
        memcpy(*names + *used, item->d_name, length + 1);
        *used += length + 1;
    }
    return errno;
}

/* All names of `folder` that a receipt may have, each with a 0 behind it, `used` bytes in all. Returns an errno;
 * with 0, `*fd` is the open folder, and `*names` to be given back to samerun_folder_end. */
EXPORT int samerun_folder_begin(const char *folder, int *fd, char **names, size_t *used) {
    *names = NULL, *used = 0;
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return errno;
    int other = fcntl(*fd, F_DUPFD_CLOEXEC, 0); /* closedir closes its own */
    DIR *open_folder = other < 0 ? NULL : fdopendir(other);
    int error = open_folder == NULL ? errno : read_names(open_folder, names, used);
    if (open_folder != NULL)
        closedir(open_folder);
    else if (other >= 0)
        close(other);
    if (error != 0) {
        free(*names);
        close(*fd);
    }
    return error;
}

EXPORT void samerun_folder_end(int fd, char *names) {
    free(names);
    close(fd);
}

static char *put_number(char *at, int64_t value) {
    char digits[NUMBER];
    int count = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    *at++ = '/';
    if (value < 0)
        *at++ = '-';
    do
        digits[count++] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static int64_t nanoseconds(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

/* Look at the next of the names, from `*at` on, until `room` bytes of `out` or `most` names are used up. Writes a
 * state with a 0 behind it for each regular file and moves `*at`; `*wrote`: bytes. Returns an errno. */
EXPORT int samerun_folder_look(int fd, const char *names, size_t used, size_t *at, int most, char *out, size_t room,
                               size_t *wrote) {
    char *end = out;
    for (; most > 0 && *at < used; most--) {
        const char *name = names + *at;
        size_t length = strlen(name);
        if ((size_t)(end - out) + length + MOST > room)
            break;
        *at += length + 1;
        struct stat info;
        if (fstatat(fd, name, &info, 0) != 0) {
            if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR)
                continue; /* gone in the meantime, or a link to nothing */
            return errno;
        }
        if (!S_ISREG(info.st_mode))
            continue;
        memcpy(end, name, length);
        end = put_number(end + length, nanoseconds(WRITTEN(info)));
        end = put_number(end, (int64_t)info.st_size);
        end = put_number(end, nanoseconds(CHANGED(info)));
        *end++ = 0;
    }
    *wrote = (size_t)(end - out);
    return 0;
}
#endif
