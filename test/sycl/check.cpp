// Memory errors of a SYCL program, host code only. Usage: check PART
//   write_after_free  writes bytes 128 to 135 of a block of 4096 that it has freed
//   small             the same, bytes 8 to 9 of a block of 100, with others of its size beside it
//   overrun           writes bytes 1000 to 1002 of a block of 1000
//   clean             allocates, writes, reads and frees every kind of memory, and frees while a command still reads
#include <sycl/sycl.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

static void put(sycl::queue &q, void *p, size_t offset, size_t length) {
    std::vector<unsigned char> bytes(length, 0x5a);

    q.memcpy(static_cast<char *>(p) + offset, bytes.data(), length).wait();
}

static bool clean(sycl::queue &q) {
    std::vector<unsigned char> back(1 << 20);
    bool good = true;

    for (size_t size : {100, 1000, 4096, 70000, 1 << 20}) {
        void *d = sycl::malloc_device(size, q), *h = sycl::malloc_host(size, q), *s = sycl::malloc_shared(size, q);
        put(q, d, 0, size);
        std::memset(h, 1, size);
        std::memset(s, 2, size);
        q.memcpy(back.data(), d, size).wait();
        for (size_t i = 0; i < size; i++)
            good = good && back[i] == 0x5a;
        sycl::free(d, q);
        sycl::free(h, q);
        sycl::free(s, q);
    }
    return good;
}

int main(int argc, char **argv) {
    std::string part = argc > 1 ? argv[1] : "";
    std::vector<sycl::device> cards = sycl::device::get_devices(sycl::info::device_type::gpu);
    sycl::context all(cards);
    sycl::queue q(all, cards.back());

    if (part == "clean")
        return clean(q) ? 0 : 1;
    if (part == "write_after_free") {
        void *p = sycl::malloc_device(4096, q);
        sycl::free(p, q);
        put(q, p, 128, 8);
    } else if (part == "small") {
        void *before = sycl::malloc_device(100, q), *p = sycl::malloc_device(100, q);
        sycl::free(p, q);
        put(q, p, 8, 2);
        sycl::free(before, q);
    } else if (part == "overrun") {
        void *p = sycl::malloc_device(1000, q);
        put(q, p, 0, 1003);
        sycl::free(p, q);
    } else {
        return 2;
    }
    return 0;
}
