#define _GNU_SOURCE
#include "scratch.h"

#include <pthread.h>
#include <stdlib.h>

enum { LINE = 64, KEPT = 64 << 20 }; /* larger memory is given back at once */

typedef struct {
    void *memory[SCRATCHES];
    size_t size[SCRATCHES];
} kept_t;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int have_key;

static void forget(void *pointer) {
    kept_t *kept = pointer;
    for (int kind = 0; kind < SCRATCHES; kind++) free(kept->memory[kind]);
    free(kept);
}

static void prepare(void) { have_key = pthread_key_create(&key, forget) == 0; }

static kept_t *mine(void) {
    pthread_once(&once, prepare);
    if (!have_key) return NULL;
    kept_t *kept = pthread_getspecific(key);
    if (kept == NULL) {
        kept = calloc(1, sizeof *kept);
        if (kept != NULL && pthread_setspecific(key, kept) != 0) {
            free(kept);
            return NULL;
        }
    }
    return kept;
}

static void *lines(size_t bytes) {
    void *memory = NULL;
    return posix_memalign(&memory, LINE, bytes + LINE) == 0 ? memory : NULL;
}

void *samerun_scratch(int kind, size_t bytes) {
    kept_t *kept = bytes <= KEPT ? mine() : NULL;
    if (kept == NULL) return lines(bytes);
    if (kept->memory[kind] == NULL || kept->size[kind] < bytes) { /* 0 bytes too are not NULL */
        free(kept->memory[kind]);
        kept->memory[kind] = lines(bytes);
        kept->size[kind] = kept->memory[kind] == NULL ? 0 : bytes;
    }
    return kept->memory[kind];
}

void samerun_scratch_done(int kind, void *memory) {
    kept_t *kept = mine();
    if (kept == NULL || kept->memory[kind] != memory) free(memory);
}
