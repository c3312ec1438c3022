/* The quick way of `samerun.record.watching.operator_mode`: the same work for the usual operator, on the same Python
 * objects, so that both ways may take turns within one run. Nothing of torch's C++ is used: tensors are read
 * through the descriptors of their Python type, which any torch has.
 *
 * Functions that return int give -1 with a Python error set, 1 for yes, 0 for no; those that return an object
 * give a new reference or NULL with an error, unless they say otherwise.
 */
#ifndef SAMERUN_WATCH_H
#define SAMERUN_WATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* --- what the Python side hands over once (module.c) ------------------------------------------------ */
typedef struct {
    PyObject *Tensor, *Parameter, *strided, *odd_dtypes, *flatten;
    PyObject *StorageRecord, *UntypedStorage, *WatchedOperator, *ThreadState;
    PyObject *xxh3_128_digest, *xxh3_64_intdigest, *shape_seed, *seeds, *dense_digest, *digest;
    PyObject *graph_task, *next_sequence, *current_node, *grad_enabled, *get_num_threads, *function_mode;
    PyObject *kinds, *kind_of, *user_kind;
    long node_ring, phase_forward, phase_backward, phase_optimizer, phase_between, event_operator;
    long flag_foreign_write, flag_no_inputs, large, piece, small, flush_events;
    uint64_t digest_pieces, team, main_thread; /* addresses of C functions, 0 where there are none; a number */
} host_t;
extern host_t host;

/* Interned names of attributes and methods. */
typedef struct {
    PyObject *stopped, *recording, *writer, *open_writer, *record_of, *digest_input, *digest_new_memory, *digest_written;
    PyObject *drop_expired, *drop_above;
    PyObject *append, *pending, *string, *place, *sequence_nr, *after, *written_record, *co_filename, *failed;
} names_t;
extern names_t names;

/* --- slots of Python objects (slots.c) --------------------------------------------------------------- */
/* Offsets of `__slots__`: reading one is reading a pointer. */
typedef struct {
    Py_ssize_t inside_samerun, phase, module, outer_modules, node_places, last_sequence, number, operator_count, step_place; /* ThreadState */
} state_slots_t;
typedef struct {
    Py_ssize_t silent, allocates, random, overwrites, writes_nothing, in_place, name_id, name, call;
} operator_slots_t;
typedef struct {
    Py_ssize_t weak_ref, on_cpu, view_digests, content_digest, trusted, uninitialised, made_at, last_writer, read_epoch;
} storage_slots_t;
extern state_slots_t state_at;
extern operator_slots_t operator_at;
extern storage_slots_t storage_at;

int find_slots(void);
static inline PyObject **slot(PyObject *object, Py_ssize_t at) { return (PyObject **)((char *)object + at); }
static inline PyObject *get(PyObject *object, Py_ssize_t at) { return *slot(object, at); } /* borrowed */
static inline bool yes(PyObject *object, Py_ssize_t at) { return *slot(object, at) == Py_True; }
void put(PyObject *object, Py_ssize_t at, PyObject *value); /* does not take the reference */
int put_number(PyObject *object, Py_ssize_t at, long value);
static inline long number(PyObject *object, Py_ssize_t at) { return PyLong_AsLong(*slot(object, at)); }

/* --- tensors (tensor.c) ------------------------------------------------------------------------------ */
int find_descriptors(void);
static inline bool is_tensor(PyObject *object) {
    return (PyObject *)Py_TYPE(object) == host.Tensor || (PyObject *)Py_TYPE(object) == host.Parameter;
}
int is_plain(PyObject *tensor); /* of an exact Tensor or Parameter: plain memory of this machine? */
int is_dense(PyObject *tensor); /* contiguous, and no lazy conjugate or negative */
int is_lazy(PyObject *tensor);  /* a conjugate or negative that was not computed yet? */
int requires_grad(PyObject *tensor);
PyObject *storage_of(PyObject *tensor);
PyObject *key_of(PyObject *storage);
PyObject *weak_reference(PyObject *storage);
PyObject *geometry(PyObject *tensor); /* (offset, shape, dtype) */
PyObject *strided_geometry(PyObject *tensor); /* (offset, shape, stride, dtype) */
int fills(PyObject *tensor, PyObject *storage); /* is it all of its memory? */
int is_small(PyObject *tensor); /* `storages.SMALL_BYTES` at most? */
/* 16 bytes: the digest of a dense tensor on the CPU. `known`, or NULL, keeps those of the pieces of a large one. */
PyObject *digest_dense(PyObject *tensor, PyObject *geometry, PyObject *known);
PyObject *digest_dense_unknown(PyObject *tensor); /* the same, with nothing known */
PyObject *digest(PyObject *module, PyObject *tensor); /* `digest.digest` */
PyObject *digest_all(PyObject *module, PyObject *args); /* (list, otherwise): one digest of all their digests */
void digest_alone(void); /* from now on (in a forked child) no threads are borrowed */

/* --- memory (memory.c): `storages.py` says what it means --------------------------------------------- */
typedef struct {
    PyObject_HEAD
    PyObject *recorder, *state, *storages, *records, *operators, *places;
    PyObject *slow; /* `OperatorMode.__torch_dispatch__`, bound: does everything */
    PyObject *writer, *pending, *push; /* the writer that events went to last, its deque, and `append` of that */
} watcher_t;
PyObject *record_of(watcher_t *w, PyObject *tensor);
PyObject *digest_input(watcher_t *w, PyObject *tensor, PyObject *record);
PyObject *digest_output(watcher_t *w, PyObject *tensor);
PyObject *digest_written(watcher_t *w, PyObject *tensor, PyObject *record);

/* --- scalars (scalars.c) ----------------------------------------------------------------------------- */
typedef struct {
    char text[1024];
    size_t length;
} scalars_t;
void scalars_begin(scalars_t *scalars);
int scalars_add(scalars_t *scalars, PyObject *item); /* 0: there are too many */
int scalars_add_number(scalars_t *scalars, long value);
PyObject *scalars_text(scalars_t *scalars); /* bytes; None where there are none */

/* --- where (place.c) --------------------------------------------------------------------------------- */
PyObject *writer_of(watcher_t *w); /* None where recording is over */
int note_silent(watcher_t *w);
int phase_and_place(watcher_t *w, PyObject **tensors, Py_ssize_t count, long *phase, long *place);

/* --- one operator (operator.c) ----------------------------------------------------------------------- */
PyObject *dispatch(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
