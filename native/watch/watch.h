/* The quick way of `samerun.record.watching.operator_mode`: the same work for the usual operator, on the same Python
 * objects, so that both ways may take turns within one run. Nothing of torch's C++ is used: tensors are read
 * through the descriptors of their Python type, which any torch has.
 *
 * Functions that return an object return a new reference, or NULL with a Python error set, unless they say otherwise.
 * All others that may fail return a `watch_status`.
 */
#ifndef SAMERUN_WATCH_H
#define SAMERUN_WATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* One convention for every function that may fail: a negative result means that a Python error is set, so a caller
 * tests `< 0` and needs no other rule. A question answers NO or YES. An action answers DONE, or LEFT_TO_PYTHON where
 * the case is unusual: nothing was recorded yet, and the slow way in Python does it from the beginning. */
typedef enum {
    STATUS_ERROR = -1,
    STATUS_NO = 0,
    STATUS_LEFT_TO_PYTHON = STATUS_NO,
    STATUS_YES = 1,
    STATUS_DONE = STATUS_YES,
} watch_status;

/* --- what the Python side hands over once (module.c) ------------------------------------------------ */
typedef struct {
    PyObject *Tensor, *Parameter, *strided, *odd_dtypes, *flatten_to_tensors_and_stable_values;
    PyObject *StorageRecord, *UntypedStorage, *WatchedOperator, *ThreadState;
    PyObject *xxh3_128_digest, *xxh3_64_intdigest, *shape_seed, *shape_seeds, *digest_dense_tensor, *digest;
    PyObject *graph_task, *next_sequence, *current_node, *grad_enabled, *get_num_threads, *function_mode;
    PyObject *code_kinds, *classify_code, *user_kind;
    long node_ring, phase_forward, phase_backward, phase_optimizer, phase_between, event_operator;
    long flag_foreign_write, flag_no_inputs, large_bytes, piece_bytes, small_bytes;
    uint64_t digest_pieces, openmp_parallel; /* addresses of C functions, 0 where there are none */
    uint64_t main_thread;                    /* its identifier */
} host_objects_t;
extern host_objects_t host;

/* Interned names of attributes and methods. */
typedef struct {
    PyObject *stopped, *recording, *writer, *open_writer;
    PyObject *find_or_add_record, *digest_input, *digest_new_memory, *digest_written, *drop_expired, *drop_above;
    PyObject *append, *pending, *flush_at, *intern_string, *intern_location, *sequence_nr;
    PyObject *record_results, *written_record, *co_filename, *count_failed_operator, *collectives;
} names_t;
extern names_t names;

/* --- slots of Python objects (slots.c) --------------------------------------------------------------- */
/* Offsets of `__slots__`: reading one is reading a pointer. */
typedef struct {
    Py_ssize_t inside_samerun, phase, module, outer_modules, node_location_ids, last_sequence, number, operator_count;
    Py_ssize_t step_location_id; /* of ThreadState */
} state_slots_t;
typedef struct {
    Py_ssize_t silent, allocates, random, overwrites, overwrites_first, writes_nothing, in_place, name_id, name;
    Py_ssize_t call, asynchronous, rank_argument, written_arguments, scratch_output; /* of WatchedOperator */
} operator_slots_t;
typedef struct {
    Py_ssize_t weak_ref, on_cpu, view_digests, content_digest, trusted, uninitialised, made_at, last_writer;
    Py_ssize_t read_epoch; /* of StorageRecord */
} storage_slots_t;
extern state_slots_t state_at;
extern operator_slots_t operator_at;
extern storage_slots_t storage_at;

watch_status resolve_slot_offsets(void);
static inline PyObject **slot_address(PyObject *object, Py_ssize_t offset) {
    return (PyObject **)((char *)object + offset);
}
static inline PyObject *borrow_slot_value(PyObject *object, Py_ssize_t offset) {
    return *slot_address(object, offset);
} /* borrowed */
static inline bool slot_is_true(PyObject *object, Py_ssize_t offset) {
    return *slot_address(object, offset) == Py_True;
}
void set_slot(PyObject *object, Py_ssize_t offset, PyObject *value); /* does not take the reference */
watch_status set_slot_number(PyObject *object, Py_ssize_t offset, long value);
static inline long slot_number(PyObject *object, Py_ssize_t offset) {
    return PyLong_AsLong(*slot_address(object, offset));
}

/* --- tensors (tensor.c) ------------------------------------------------------------------------------ */
watch_status resolve_tensor_descriptors(void);
static inline bool is_tensor(PyObject *object) {
    return (PyObject *)Py_TYPE(object) == host.Tensor || (PyObject *)Py_TYPE(object) == host.Parameter;
}
watch_status is_plain_cpu_tensor(PyObject *tensor); /* of an exact Tensor or Parameter: plain memory of this machine? */
watch_status is_contiguous_and_not_lazy(PyObject *tensor); /* contiguous, and no lazy conjugate or negative */
watch_status is_lazy_conj_or_neg(PyObject *tensor); /* a conjugate or negative that was not computed yet? */
watch_status requires_grad(PyObject *tensor);
PyObject *shape_of(PyObject *tensor);
PyObject *storage_offset_of(PyObject *tensor);
PyObject *untyped_storage_of(PyObject *tensor);
PyObject *storage_key_of(PyObject *storage);
PyObject *storage_weak_ref(PyObject *storage);
PyObject *offset_shape_dtype_key(PyObject *tensor); /* (offset, shape, dtype) */
PyObject *offset_shape_stride_dtype_key(PyObject *tensor); /* (offset, shape, stride, dtype) */
watch_status has_same_nbytes_as_storage(PyObject *tensor, PyObject *storage); /* is the tensor all of its memory? */
watch_status is_at_most_small_bytes(PyObject *tensor); /* `storages.SMALL_BYTES` at most? */
/* 16 bytes: the digest of a dense tensor on the CPU. `digest_cache`, a dict or NULL, keeps those of the pieces of a
 * large one. */
PyObject *digest_contiguous(PyObject *tensor, PyObject *view_key, PyObject *digest_cache_or_null);
PyObject *digest_contiguous_uncached(PyObject *tensor); /* the same, with nothing known */
PyObject *digest(PyObject *module, PyObject *tensor); /* `digest.digest` */
/* The digest into 16 bytes; `digest_other` gives that of what is no tensor, where there may be such. */
watch_status write_digest_bytes(char *out, PyObject *value, PyObject *digest_other_or_null);
PyObject *digest_of_element_digests(PyObject *module,
                                    PyObject *args); /* (list, digest_other): one digest of all their digests */
void stop_borrowing_openmp_threads(void); /* from now on (in a forked child) no threads are borrowed */

/* --- memory (memory.c): `storages.py` says what it means --------------------------------------------- */
typedef struct {
    PyObject_HEAD PyObject *recorder, *state, *storages, *records, *operators, *location_ids;
    PyObject *slow; /* `OperatorMode.__torch_dispatch__`, bound: does everything */
    PyObject *writer, *pending, *push; /* the writer that events went to last, its deque, and `append` of that */
    char is_recording; /* the recorder works, and not the program: a signal's handler must not raise here */
} watcher_t;
PyObject *find_or_add_record(watcher_t *watcher, PyObject *tensor);
PyObject *digest_input(watcher_t *watcher, PyObject *tensor, PyObject *record);
PyObject *digest_output(watcher_t *watcher, PyObject *tensor);
PyObject *digest_written(watcher_t *watcher, PyObject *tensor, PyObject *record);

/* --- scalars (scalars.c) ----------------------------------------------------------------------------- */
typedef struct {
    char text[1024];
    size_t length;
} scalars_t;
void begin_scalars_text(scalars_t *scalars);
watch_status append_scalar_repr_hiding_paths(scalars_t *scalars,
                                             PyObject *scalar); /* LEFT_TO_PYTHON: there are too many */
watch_status append_scalar_number(scalars_t *scalars, long value);
PyObject *finish_scalars_bytes_or_none(scalars_t *scalars); /* bytes; None where there are none */

/* --- arguments and results (flattening.c) -------------------------------------------------------------- */
/* Operators of more tensors take the slow way, as do all unusual ones. */
enum { MOST_TENSORS = 128, DIGEST_BYTES = 16 };

typedef struct {
    PyObject *tensors[MOST_TENSORS]; /* borrowed */
    Py_ssize_t count;
    scalars_t others; /* what is no tensor */
} flattened_t;
void begin_flattening(flattened_t *flattened);
watch_status flatten_value(flattened_t *flattened, PyObject *value); /* watched_operator.py, of one value */

/* --- where (location.c) ------------------------------------------------------------------------------ */
PyObject *get_or_open_trace_writer(watcher_t *watcher); /* None where recording is over */
watch_status record_new_forward_nodes_at_user_line(watcher_t *watcher);
watch_status find_phase_and_location_noting_new_nodes(watcher_t *watcher, PyObject **tensors, Py_ssize_t count,
                                                      long *phase, long *location_id);

/* --- one operator (operator.c) ----------------------------------------------------------------------- */
watch_status is_torch_function_mode_active(void); /* one that would see us read attributes */
bool begins_with_number(PyObject *args);
PyObject *find_watched_operator(PyObject *operators, PyObject *func); /* by the operator's id; borrowed, or NULL */
PyObject *torch_dispatch(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* --- the digests of a step (step_digests.c) ------------------------------------------------------------ */
extern PyType_Spec step_digester_spec;

#endif
