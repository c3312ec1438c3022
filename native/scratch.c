#define _GNU_SOURCE
#include "scratch.h"

#include <pthread.h>
#include <stdlib.h>

enum { LINE = 64, KEPT = 64 << 20 }; /* larger memory is given back at once */

typedef struct {
    void *memory[SCRATCHES];
    size_t size[SCRATCHES];
} thread_buffers_t;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int have_key;

static void free_thread_buffers(void *thread_buffers) {
    thread_buffers_t *kept = thread_buffers;
    for (int kind = 0; kind < SCRATCHES; kind++) free(kept->memory[kind]);
    free(kept);
}

static void create_thread_key(void) { have_key = pthread_key_create(&key, free_thread_buffers) == 0; }

static thread_buffers_t *get_or_create_thread_buffers(void) {
    pthread_once(&once, create_thread_key);
    if (!have_key) return NULL;
    thread_buffers_t *kept = pthread_getspecific(key);
    if (kept == NULL) {
        kept = calloc(1, sizeof *kept);
        if (kept != NULL && pthread_setspecific(key, kept) != 0) {
            free(kept);
            return NULL;
        }
    }
    return kept;
}

static void *allocate_cache_line_aligned(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, LINE, bytes + LINE) == 0 ? memory : NULL;
}

void *samerun_borrow_scratch(int kind, size_t bytes) {
    thread_buffers_t *kept = bytes <= KEPT ? get_or_create_thread_buffers() : NULL;
    if (kept == NULL) return allocate_cache_line_aligned(bytes);
    if (kept->memory[kind] == NULL || kept->size[kind] < bytes) { /* 0 bytes too are not NULL */
        free(kept->memory[kind]);
        kept->memory[kind] = allocate_cache_line_aligned(bytes);
        kept->size[kind] = kept->memory[kind] == NULL ? 0 : bytes;
    }
    return kept->memory[kind];
}

void samerun_release_scratch(int kind, void *memory) {
    thread_buffers_t *kept = get_or_create_thread_buffers();
    if (kept == NULL || kept->memory[kind] != memory) free(memory);
}
