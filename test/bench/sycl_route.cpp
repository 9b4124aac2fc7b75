// ns per aligned_alloc_device + free of one block, as a SYCL program sees it. It is asked for by lines "size pairs" on
// stdin and answers each with a line "ns": so several programs can be measured in turn, a moment each.
#include <sycl/sycl.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>

static void pairs(size_t count, size_t size, const sycl::device &device, const sycl::context &context) {
    for (size_t i = 0; i < count; i++) {
        void *p = sycl::aligned_alloc_device(512, size, device, context);
        if (!p)
            std::exit(1);
        sycl::free(p, context);
    }
}

int main() {
    using clock = std::chrono::steady_clock;
    auto devices = sycl::device::get_devices(sycl::info::device_type::gpu);
    if (devices.empty())
        return 1;
    sycl::context all = devices[0].get_platform().ext_oneapi_get_default_context();
    // As in a program that runs for a while: something is held, so that no pool runs dry between two blocks.
    void *held = sycl::aligned_alloc_device(512, 2 << 20, devices[0], all);
    size_t size, count;
    while (std::scanf("%zu %zu", &size, &count) == 2) {
        // The others have used the processor's caches meanwhile.
        pairs(count / 8 + 1, size, devices[0], all);
        auto start = clock::now();
        pairs(count, size, devices[0], all);
        double ns = std::chrono::duration<double, std::nano>(clock::now() - start).count();
        std::printf("%.2f\n", ns / double(count));
        std::fflush(stdout);
    }
    sycl::free(held, all);
    return 0;
}
