/* Fix the random bytes of the system. Preloaded into a run (LD_PRELOAD), this shows whether its results depend on bytes
 * that native code draws, which no Python function sees.
 *
 * SAMERUN_ENTROPY=fixed: getrandom, getentropy, arc4random and the devices give the same bytes in every run.
 * SAMERUN_ENTROPY_VALUE: a small number; with another one they give other bytes.
 * SAMERUN_ENTROPY_FILE: what /dev/urandom and /dev/random are opened as, with `fixed`.
 * SAMERUN_ENTROPY_COUNTER: a file of eight bytes, in which a process and the programs that it starts count together.
 * Without them nothing changes. In all cases samerun_entropy_draw_count() counts the draws. The processor's own
 * instruction (rdrand) is not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static _Atomic uint64_t own_draws, position;

/* Where draws are counted: in memory that is shared with other processes if a file for it is named. */
static _Atomic uint64_t *draw_counter(void) {
    static _Atomic(_Atomic uint64_t *) cached;
    _Atomic uint64_t *counter = atomic_load(&cached);
    if (counter == NULL) {
        counter = &own_draws;
        const char *path = getenv("SAMERUN_ENTROPY_COUNTER");
        /* past the functions of this library, which would ask for the counter again */
        long file = path != NULL ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
        if (file >= 0) {
            void *shared = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, (int)file, 0);
            counter = shared != MAP_FAILED ? shared : counter;
            close((int)file);
        }
        atomic_store(&cached, counter);
    }
    return counter;
}

static void count_draw(void) { atomic_fetch_add(draw_counter(), 1); }

uint64_t samerun_entropy_draw_count(void) { return atomic_load(draw_counter()); }

static int entropy_is_fixed(void) {
    static _Atomic int cached; /* 0: not looked yet; 1: as it was; 2: fixed */
    int now = atomic_load(&cached);
    if (now == 0) {
        const char *mode = getenv("SAMERUN_ENTROPY");
        now = mode != NULL && strcmp(mode, "fixed") == 0 ? 2 : 1;
        atomic_store(&cached, now);
    }
    return now == 2;
}

/* Where the stream begins: far from where it begins for any other value. */
static uint64_t stream_start_from_environment(void) {
    static _Atomic uint64_t cached; /* 0: not looked yet; else one more than the start */
    uint64_t now = atomic_load(&cached);
    if (now == 0) {
        const char *value = getenv("SAMERUN_ENTROPY_VALUE");
        now = ((value != NULL ? strtoull(value, NULL, 10) : 0) << 48) + 1;
        atomic_store(&cached, now);
    }
    return now - 1;
}

/* SplitMix64 (Steele, Lea, Flood 2014): a stream that depends on the number of the word alone. */
static uint64_t next_stream_word(void) {
    uint64_t z = (stream_start_from_environment() + atomic_fetch_add(&position, 1) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void fill_from_fixed_stream(void *buffer, size_t size) {
    unsigned char *next = buffer;
    while (size > 0) {
        uint64_t bits = next_stream_word();
        size_t part = size < sizeof bits ? size : sizeof bits;
        memcpy(next, &bits, part);
        next += part;
        size -= part;
    }
}

/* The next definition of a function, behind this library. */
#define NEXT_DEFINITION(type, name, ...)                     \
    static type (*next_definition)(__VA_ARGS__);             \
    if (next_definition == NULL) {                           \
        *(void **)&next_definition = dlsym(RTLD_NEXT, name); \
    }

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
    NEXT_DEFINITION(ssize_t, "getrandom", void *, size_t, unsigned)
    count_draw();
    if (entropy_is_fixed()) {
        fill_from_fixed_stream(buffer, size);
        return (ssize_t)size;
    }
    if (next_definition == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return next_definition(buffer, size, flags);
}

int getentropy(void *buffer, size_t size) {
    NEXT_DEFINITION(int, "getentropy", void *, size_t)
    count_draw();
    if (entropy_is_fixed() && size <= 256) {
        fill_from_fixed_stream(buffer, size);
        return 0;
    }
    if (next_definition == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return next_definition(buffer, size);
}

void arc4random_buf(void *buffer, size_t size) {
    NEXT_DEFINITION(void, "arc4random_buf", void *, size_t)
    count_draw();
    if (entropy_is_fixed() || next_definition == NULL) {
        fill_from_fixed_stream(buffer, size);
    } else {
        next_definition(buffer, size);
    }
}

uint32_t arc4random(void) {
    uint32_t bits;
    arc4random_buf(&bits, sizeof bits);
    return bits;
}

/* The file to open in place of a path: another one only for the two devices. */
static const char *count_and_redirect_random_device(const char *path) {
    if (path == NULL || (strcmp(path, "/dev/urandom") != 0 && strcmp(path, "/dev/random") != 0)) {
        return path;
    }
    count_draw();
    const char *file = entropy_is_fixed() ? getenv("SAMERUN_ENTROPY_FILE") : NULL;
    return file != NULL ? file : path;
}

#define MODE_OF(flags)                                               \
    mode_t mode = 0;                                                 \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                                \
        va_start(rest, flags);                                       \
        mode = va_arg(rest, mode_t);                                 \
        va_end(rest);                                                \
    }

#define OPEN(name)                                                                   \
    int name(const char *path, int flags, ...) {                                     \
        static int (*next_definition)(const char *, int, ...);                       \
        if (next_definition == NULL) {                                               \
            *(void **)&next_definition = dlsym(RTLD_NEXT, #name);                    \
        }                                                                            \
        MODE_OF(flags)                                                               \
        return next_definition(count_and_redirect_random_device(path), flags, mode); \
    }

#define OPENAT(name)                                                                         \
    int name(int folder, const char *path, int flags, ...) {                                 \
        static int (*next_definition)(int, const char *, int, ...);                          \
        if (next_definition == NULL) {                                                       \
            *(void **)&next_definition = dlsym(RTLD_NEXT, #name);                            \
        }                                                                                    \
        MODE_OF(flags)                                                                       \
        return next_definition(folder, count_and_redirect_random_device(path), flags, mode); \
    }

#define FOPEN(name)                                                           \
    FILE *name(const char *path, const char *mode) {                          \
        static FILE *(*next_definition)(const char *, const char *);          \
        if (next_definition == NULL) {                                        \
            *(void **)&next_definition = dlsym(RTLD_NEXT, #name);             \
        }                                                                     \
        return next_definition(count_and_redirect_random_device(path), mode); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)
