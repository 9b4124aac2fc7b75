// Memory errors of a SYCL program, one per part, host code only. Usage: check PART
//   write_after_free  writes bytes 128 to 135 of a block of 4096 that it has freed
//   host              writes byte 77 of a block of 4096 of host memory that it has freed
//   small             writes bytes 8 to 9 of a block of 100 that it has freed, with others of its size beside it
//   overrun           writes bytes 1000 to 1002 of a block of 1000
//   underrun          writes 4 bytes before the start of a block of 960
//   double_free, interior_free, foreign_free, wrong_context, leak
//   ipc               frees a block of 2 MiB that another process has open
//   ipc_clean         the same, closed before
//   clean             allocates, writes, reads and frees every kind of memory
#include <sycl/sycl.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
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

// The runtime may throw what it is told of a wrong free.
static void free_wrong(void *p, const sycl::context &context) {
    try {
        sycl::free(p, context);
    } catch (const sycl::exception &) {
    }
}

static void turn(int fd) {
    if (write(fd, "", 1) != 1)
        _exit(3);
}

static void await_turn(int fd) {
    char c;

    if (read(fd, &c, 1) != 1)
        _exit(3);
}

// Forked before the runtime is touched: the parent exports, the child opens.
static int share(bool closes) {
    namespace ipc = sycl::ext::oneapi::experimental::ipc::memory;
    int to_child[2], to_parent[2], status = 0;
    unsigned char bytes[4096];

    if (pipe(to_child) || pipe(to_parent))
        return 2;
    bool importer = fork() == 0;
    sycl::queue q;
    if (importer) {
        ssize_t n = read(to_child[0], bytes, sizeof bytes);
        auto *data = reinterpret_cast<std::byte *>(bytes);
        void *p = ipc::open({data, data + n}, q.get_context(), q.get_device());
        if (closes)
            ipc::close(p, q.get_context());
        turn(to_parent[1]);
        await_turn(to_child[0]);
        return 0;
    }
    void *p = sycl::malloc_device(2 << 20, q);
    auto handle = ipc::get(p, q.get_context());
    auto data = handle.data();
    if (write(to_child[1], data.data(), data.size()) != static_cast<ssize_t>(data.size()))
        return 2;
    await_turn(to_parent[0]);
    sycl::free(p, q);
    usleep(300000); // the importer looks now and then
    turn(to_child[1]);
    wait(&status);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    std::string part = argc > 1 ? argv[1] : "";

    if (part == "ipc" || part == "ipc_clean")
        return share(part == "ipc_clean");
    std::vector<sycl::device> cards = sycl::device::get_devices(sycl::info::device_type::gpu);
    sycl::context all(cards);
    sycl::queue q(all, cards.back());

    if (part == "clean")
        return clean(q) ? 0 : 1;
    if (part == "write_after_free") {
        void *p = sycl::malloc_device(4096, q);
        sycl::free(p, q);
        put(q, p, 128, 8);
    } else if (part == "host") {
        char *p = sycl::malloc_host<char>(4096, q);
        sycl::free(p, q);
        const_cast<volatile char *>(p)[77] = 1;
    } else if (part == "small") {
        void *before = sycl::malloc_device(100, q), *p = sycl::malloc_device(100, q);
        sycl::free(p, q);
        put(q, p, 8, 2);
        sycl::free(before, q);
    } else if (part == "overrun") {
        void *p = sycl::malloc_device(1000, q);
        put(q, p, 0, 1003);
        sycl::free(p, q);
    } else if (part == "underrun") {
        char *a = sycl::malloc_device<char>(960, q), *b = sycl::malloc_device<char>(960, q);
        put(q, (a > b ? a : b) - 4, 0, 4);
        sycl::free(a, q);
        sycl::free(b, q);
    } else if (part == "double_free") {
        void *p = sycl::malloc_device(4096, q);
        sycl::free(p, q);
        free_wrong(p, all);
    } else if (part == "interior_free") {
        char *p = sycl::malloc_device<char>(4096, q);
        free_wrong(p + 64, all);
        sycl::free(p, q);
    } else if (part == "foreign_free") {
        static char nothing[64];
        void *p = sycl::malloc_device(4096, q);
        free_wrong(nothing, all);
        sycl::free(p, q);
    } else if (part == "wrong_context") {
        sycl::context other(cards);
        free_wrong(sycl::malloc_device(4096, q), other);
    } else if (part == "leak") {
        sycl::malloc_device(4096, q);
    } else {
        return 2;
    }
    return 0;
}
