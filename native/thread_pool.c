#define _GNU_SOURCE
#include "thread_pool.h"

#include <pthread.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#define PAUSE() _mm_pause()
#else
#define PAUSE() __asm__ volatile("" ::: "memory")
#endif

enum { MOST = 256, SPINS = 3000, PIECES_PER_THREAD = 4 };

typedef void work_t(void *job, int64_t from, int64_t to);

/* One job at a time. `turn` counts jobs; a worker that has seen this turn's job waits for the next. */
static struct {
    pthread_mutex_t busy; /* held by the thread whose job this is */
    pthread_mutex_t lock; /* guards turn, worker_count and sleeping workers */
    pthread_cond_t wake, done;
    int threads, workers;
    uint64_t turn;
    int wanted;  /* workers that this job may still take */
    int working; /* workers inside this job */
    work_t *work;
    void *job;
    int shares;
    int64_t piece;
} pool = {PTHREAD_MUTEX_INITIALIZER,
          PTHREAD_MUTEX_INITIALIZER,
          PTHREAD_COND_INITIALIZER,
          PTHREAD_COND_INITIALIZER,
          1,
          0,
          0,
          0,
          0,
          0,
          0,
          0,
          0};

/* What is left of a job, a share for each thread, in order: that of one operator is, as a rule, the part of its tensors
 * that the thread's caches still hold of the operator before. Who is done with its own helps with the others'. */
static struct {
    _Alignas(64) int64_t next;
    int64_t end;
} shares[MOST];

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* GOMP_parallel of the OpenMP library that the program computes with. Its threads wait for the next operator without
 * sleeping, for a while: threads of our own would share the cores with them. */
static samerun_gomp_parallel *lent;
static samerun_omp_get_thread_num *omp_get_thread_num_of_team;

/* Rounding to nearest, subnormals kept: a program may have set its thread otherwise. */
#if defined(__x86_64__)
typedef unsigned float_mode_t;
static float_mode_t replace_float_mode_by_default(void) {
    float_mode_t old = _mm_getcsr();
    _mm_setcsr((old | 0x1F80) & ~0xE040U); /* exceptions masked; no flush, no denormals-are-zero, to nearest */
    return old;
}
static void restore_float_mode(float_mode_t old) { _mm_setcsr(old); }
#elif defined(__aarch64__)
typedef uint64_t float_mode_t;
static float_mode_t replace_float_mode_by_default(void) {
    float_mode_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0));
    return old;
}
static void restore_float_mode(float_mode_t old) { __asm__ volatile("msr fpcr, %0" ::"r"(old)); }
#else
typedef int float_mode_t;
static float_mode_t replace_float_mode_by_default(void) { return 0; }
static void restore_float_mode(float_mode_t old) { (void)old; }
#endif

static __thread int inside;

/* A thread starts with its own share, whose memory its caches still hold of the operator before, then takes pieces that
 * are left of the others' (decision 0046). Which thread computes a piece is no part of any result. */
static void run_own_share_then_steal(int thread_number) {
    float_mode_t old = replace_float_mode_by_default();
    inside = 1;
    for (int i = 0; i < pool.shares; i++) {
        const int share = (thread_number + i) % pool.shares;
        const int64_t end = shares[share].end;
        for (;;) {
            int64_t from = __atomic_fetch_add(&shares[share].next, pool.piece, __ATOMIC_RELAXED);
            if (from >= end) break;
            pool.work(pool.job, from, end - from > pool.piece ? from + pool.piece : end);
        }
    }
    inside = 0;
    restore_float_mode(old);
}

static void run_openmp_team_member(void *unused) {
    (void)unused;
    run_own_share_then_steal(omp_get_thread_num_of_team());
}

/* Every other thread would be given a team of its own. */
static int is_linux_main_thread(void) {
#if defined(__linux__)
    static __thread int known;
    if (known == 0) known = syscall(SYS_gettid) == getpid() ? 1 : -1;
    return known == 1;
#else
    return 0;
#endif
}

static void *worker_main(void *worker_number) {
    const int thread = (int)(intptr_t)worker_number;
    uint64_t seen = 0;
    for (;;) {
        /* The next operator often follows soon: look for it a moment before going to sleep. */
        for (int i = 0; i < SPINS && __atomic_load_n(&pool.turn, __ATOMIC_ACQUIRE) == seen; i++) PAUSE();
        pthread_mutex_lock(&pool.lock);
        while (pool.turn == seen) pthread_cond_wait(&pool.wake, &pool.lock);
        seen = pool.turn;
        int mine = pool.wanted > 0;
        if (mine) pool.wanted--, pool.working++;
        pthread_mutex_unlock(&pool.lock);
        if (!mine) continue;
        run_own_share_then_steal(thread);
        pthread_mutex_lock(&pool.lock);
        if (--pool.working == 0) pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
    return 0;
}

/* In a forked child there are no workers and locks may be held by threads that do not exist: a new pool.
 * A team that the parent has used would hang. */
static void reset_pool_in_child(void) {
    lent = 0;
    pthread_mutex_init(&pool.busy, 0);
    pthread_mutex_init(&pool.lock, 0);
    pthread_cond_init(&pool.wake, 0);
    pthread_cond_init(&pool.done, 0);
    pool.workers = 0;
    pool.turn = 0;
    pool.wanted = pool.working = 0;
}

static void register_fork_handler(void) { pthread_atfork(0, 0, reset_pool_in_child); }

static void try_start_missing_workers(int worker_count) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (pool.workers < worker_count) {
        pthread_t id;
        if (pthread_create(&id, &attributes, worker_main, (void *)(intptr_t)(pool.workers + 1)))
            break; /* fewer threads, the same bits */
        pool.workers++;
    }
    pthread_attr_destroy(&attributes);
}

static void run_on_caller_only(int64_t n, work_t *work, void *job) {
    float_mode_t old = replace_float_mode_by_default();
    work(job, 0, n);
    restore_float_mode(old);
}

static void run_on_caller_and_workers(int worker_count) {
    try_start_missing_workers(worker_count);
    pthread_mutex_lock(&pool.lock);
    pool.wanted = worker_count;
    __atomic_store_n(&pool.turn, pool.turn + 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    run_own_share_then_steal(0);
    pthread_mutex_lock(&pool.lock);
    pool.wanted = 0; /* whoever wakes up only now finds nothing left */
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < SPINS && __atomic_load_n(&pool.working, __ATOMIC_ACQUIRE); i++) PAUSE();
    pthread_mutex_lock(&pool.lock);
    while (pool.working) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void samerun_parallel_for(int64_t n, int64_t grain, work_t *work, void *job) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    int threads = __atomic_load_n(&pool.threads, __ATOMIC_RELAXED);
    if (threads > (n + grain - 1) / grain) threads = (int)((n + grain - 1) / grain);
    if (threads < 2 || pthread_mutex_trylock(&pool.busy)) {
        run_on_caller_only(n, work, job);
        return;
    }
    pthread_once(&once, register_fork_handler);
    /* No worker reads these before it is worker_count, and none is now. */
    const int64_t pieces = (int64_t)threads * PIECES_PER_THREAD, piece = (n + pieces - 1) / pieces;
    pool.work = work, pool.job = job, pool.shares = threads, pool.piece = piece > grain ? piece : grain;
    for (int i = 0; i < threads; i++) shares[i].next = n * i / threads, shares[i].end = n * (i + 1) / threads;
    if (lent != 0 && is_linux_main_thread()) {
        /* The whole team, as torch's operators do: another size would end threads and start them again. */
        lent(run_openmp_team_member, 0, (unsigned)pool.threads, 0);
    } else {
        run_on_caller_and_workers(threads - 1);
    }
    pthread_mutex_unlock(&pool.busy);
}

void samerun_use_openmp_team(samerun_gomp_parallel *gomp_parallel, samerun_omp_get_thread_num *omp_get_thread_num) {
    pthread_once(&once, register_fork_handler);
    lent = gomp_parallel && omp_get_thread_num ? gomp_parallel : 0, omp_get_thread_num_of_team = omp_get_thread_num;
}

void samerun_set_num_threads(int threads) {
    __atomic_store_n(&pool.threads, threads < 1 ? 1 : threads > MOST ? MOST : threads, __ATOMIC_RELAXED);
}

int samerun_get_num_threads_for_new_job(void) { return inside ? 1 : samerun_get_pool_num_threads(); }

int samerun_get_pool_num_threads(void) { return __atomic_load_n(&pool.threads, __ATOMIC_RELAXED); }
