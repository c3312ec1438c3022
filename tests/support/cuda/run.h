/* Appended to a kernel source: how a test starts its kernels by name, as the driver does, with addresses of arguments. */
namespace emulated {
template <class... A, size_t... I> static void with(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
    kernel(*(typename std::remove_reference<A>::type *)given[I]...);
}
template <class... A> static void called(void (*kernel)(A...), void **given) {
    with(kernel, given, std::index_sequence_for<A...>{});
}

struct kernel_t {
    const char *name;
    void (*body)(void **);
};
#define EMULATED(kernel) {#kernel, [](void **given) { called(kernel, given); }},
static const kernel_t kernels[] = {EMULATED_KERNELS};
} // namespace emulated

/* 1; 0 where there is no such kernel. */
extern "C" int emulated_launch(const char *name, long blocks, unsigned x, unsigned y, void **given, int backwards) {
    using namespace emulated;
    for (const kernel_t &each : kernels) {
        if (std::strcmp(each.name, name)) continue;
        body = each.body;
        arguments = given;
        blockDim = {x, y, 1};
        gridDim = {(unsigned)blocks, 1, 1};
        count = (int)(x * y);
        if (count > MOST) return 0;
        for (long i = 0; i < blocks; i++) {
            blockIdx = {(unsigned)(backwards ? blocks - 1 - i : i), 0, 0};
            run_block(backwards != 0);
        }
        return 1;
    }
    return 0;
}
