/* Python functions in the place of functions and methods written in C, as objects of the same type.
 *
 * A Python function becomes a method where it is stored in a class (`converter = time.localtime`), is copied by
 * `copy.deepcopy` with what it is bound to, and is looked into by inspect and by torch's compiler; a function in C is
 * none of that. Nothing tells wrap(original, function) from the original but what it does.
 *
 * A method definition has no room for a pointer of ours, so each wrapper has a C function of its own.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#define SLOTS 512
#define STACK_ARGUMENTS 8

#if defined(__GNUC__)
#define ONCE __attribute__((noinline)) /* thousands of functions call it */
#else
#define ONCE
#endif

static struct {
    PyObject *function;
    int takes_self;
} slots[SLOTS];
static PyMethodDef definitions[SLOTS];
static int slots_used;

static ONCE PyObject *call_wrapped_function(int slot, PyObject *self, PyObject *const *args, Py_ssize_t count,
                                            PyObject *names) {
    PyObject *function = slots[slot].function;
    if (!slots[slot].takes_self) {
        return PyObject_Vectorcall(function, args, (size_t)count, names);
    }
    Py_ssize_t total = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject *on_stack[STACK_ARGUMENTS + 1], **with_self = on_stack;
    if (total > STACK_ARGUMENTS) {
        with_self = PyMem_New(PyObject *, total + 1);
        if (with_self == NULL) {
            return PyErr_NoMemory();
        }
    }
    with_self[0] = self;
    if (total > 0) {
        memcpy(with_self + 1, args, (size_t)total * sizeof *args);
    }
    PyObject *result = PyObject_Vectorcall(function, with_self, (size_t)count + 1, names);
    if (with_self != on_stack) {
        PyMem_Free(with_self);
    }
    return result;
}

static ONCE PyObject *call_wrapped_function_with_dict(int slot, PyObject *self, PyObject *args, PyObject *keywords) {
    PyObject *function = slots[slot].function;
    if (!slots[slot].takes_self) {
        return PyObject_Call(function, args, keywords);
    }
    PyObject *with_self = PyTuple_New(PyTuple_GET_SIZE(args) + 1);
    if (with_self == NULL) {
        return NULL;
    }
    PyTuple_SET_ITEM(with_self, 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyTuple_SET_ITEM(with_self, i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
    }
    PyObject *result = PyObject_Call(function, with_self, keywords);
    Py_DECREF(with_self);
    return result;
}

/* A slot's function in each way of calling that a method definition can ask for. */
typedef union {
    PyCFunction one_object;
    PyCFunctionWithKeywords dict;
    _PyCFunctionFast fast;
    _PyCFunctionFastWithKeywords fast_keywords;
} SlotFunction;

typedef struct {
    SlotFunction no_arguments, one_argument, tuple, tuple_and_dict, array, array_and_names;
} SlotFunctions;

#define SIXTEEN(do, n)                                                                                            \
    do                                                                                                            \
    (n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7) do(n##8) do(n##9) do(n##a) do(n##b) do( \
        n##c) do(n##d) do(n##e) do(n##f)
#define DEFINE(n)                                                                                                    \
    static PyObject *no_arguments_##n(PyObject *self, PyObject *unused) {                                            \
        (void)unused;                                                                                                \
        return call_wrapped_function(0x##n, self, NULL, 0, NULL);                                                    \
    }                                                                                                                \
    static PyObject *one_argument_##n(PyObject *self, PyObject *arg) {                                               \
        return call_wrapped_function(0x##n, self, &arg, 1, NULL);                                                    \
    }                                                                                                                \
    static PyObject *tuple_##n(PyObject *self, PyObject *args) {                                                     \
        return call_wrapped_function_with_dict(0x##n, self, args, NULL);                                             \
    }                                                                                                                \
    static PyObject *tuple_and_dict_##n(PyObject *self, PyObject *args, PyObject *keywords) {                        \
        return call_wrapped_function_with_dict(0x##n, self, args, keywords);                                         \
    }                                                                                                                \
    static PyObject *array_##n(PyObject *self, PyObject *const *args, Py_ssize_t count) {                            \
        return call_wrapped_function(0x##n, self, args, count, NULL);                                                \
    }                                                                                                                \
    static PyObject *array_and_names_##n(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) { \
        return call_wrapped_function(0x##n, self, args, count, names);                                               \
    }
#define NAME(n)                        \
    {{.one_object = no_arguments_##n}, \
     {.one_object = one_argument_##n}, \
     {.one_object = tuple_##n},        \
     {.dict = tuple_and_dict_##n},     \
     {.fast = array_##n},              \
     {.fast_keywords = array_and_names_##n}},
#define DEFINE_16(n) SIXTEEN(DEFINE, n)
#define NAME_16(n) SIXTEEN(NAME, n)
#define SIXTEEN_TIMES(do, n)                                                                                      \
    do                                                                                                            \
    (n##0) do(n##1) do(n##2) do(n##3) do(n##4) do(n##5) do(n##6) do(n##7) do(n##8) do(n##9) do(n##a) do(n##b) do( \
        n##c) do(n##d) do(n##e) do(n##f)

SIXTEEN_TIMES(DEFINE_16, 0)
SIXTEEN_TIMES(DEFINE_16, 1)

static const SlotFunctions functions[SLOTS] = {SIXTEEN_TIMES(NAME_16, 0) SIXTEEN_TIMES(NAME_16, 1)};

/* Sets how the definition is called: as the original is, whose errors about the number of arguments come from Python,
 * and whose function other libraries replace by one of the same signature (time-machine does). */
static void set_calling_convention(PyMethodDef *definition, int slot, int flags) {
    const SlotFunctions *of_slot = &functions[slot];
    definition->ml_flags = flags;
    switch (flags & (METH_VARARGS | METH_FASTCALL | METH_NOARGS | METH_O | METH_KEYWORDS | METH_METHOD)) {
    case METH_NOARGS: definition->ml_meth = of_slot->no_arguments.one_object; break;
    case METH_O: definition->ml_meth = of_slot->one_argument.one_object; break;
    case METH_VARARGS: definition->ml_meth = of_slot->tuple.one_object; break;
    case METH_VARARGS | METH_KEYWORDS: definition->ml_meth = of_slot->tuple_and_dict.one_object; break;
    case METH_FASTCALL: definition->ml_meth = of_slot->array.one_object; break;
    case METH_FASTCALL | METH_KEYWORDS: definition->ml_meth = of_slot->array_and_names.one_object; break;
    default: /* with the class that defines the method, too, which only the original can use */
        definition->ml_meth = of_slot->array_and_names.one_object;
        definition->ml_flags = METH_FASTCALL | METH_KEYWORDS;
    }
}

static PyObject *wrap(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *original, *function;
    if (!PyArg_ParseTuple(args, "OO", &original, &function)) {
        return NULL;
    }
    PyTypeObject *kind = Py_TYPE(original);
    const PyMethodDef *like;
    if (PyCFunction_CheckExact(original)) {
        like = ((PyCFunctionObject *)original)->m_ml;
    } else if (kind == &PyMethodDescr_Type || kind == &PyClassMethodDescr_Type) {
        like = ((PyMethodDescrObject *)original)->d_method;
    } else {
        return PyErr_Format(PyExc_TypeError, "%R is not a function or method written in C", original);
    }
    if (slots_used == SLOTS) {
        PyErr_SetString(PyExc_MemoryError, "all wrappers are in use");
        return NULL;
    }
    int slot = slots_used++;
    PyMethodDef *definition = &definitions[slot];
    definition->ml_name = like->ml_name;
    definition->ml_doc = like->ml_doc;
    set_calling_convention(definition, slot, like->ml_flags);
    slots[slot].function = Py_NewRef(function);
    slots[slot].takes_self = !PyCFunction_CheckExact(original);
    Py_INCREF(original); /* the name and the documentation may be its own */
    if (kind == &PyMethodDescr_Type) {
        return PyDescr_NewMethod(PyDescr_TYPE(original), definition);
    }
    if (kind == &PyClassMethodDescr_Type) {
        return PyDescr_NewClassMethod(PyDescr_TYPE(original), definition);
    }
    PyCFunctionObject *plain = (PyCFunctionObject *)original;
    return PyCFunction_NewEx(definition, plain->m_self, plain->m_module);
}

static PyMethodDef methods[] = {
    {"wrap", wrap, METH_VARARGS, "wrap(original, function): `function` as an object of the type of `original`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_wrap", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__wrap(void) { return PyModule_Create(&definition); }
