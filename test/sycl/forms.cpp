// Every form of USM allocation, and what a program can do with the memory and ask about it, as a transcript without
// addresses: with zeroute it must read as without. Host code only. Usage: forms ACT...
//
// Left out on purpose, because we answer better than the runtime: a size near the end of numbers, where adapter v2
// hands out a block that is too small.
#include <sycl/sycl.hpp>

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/async_alloc/memory_pool.hpp>
#include <sycl/ext/oneapi/experimental/ipc_memory.hpp>

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace sycl;
namespace ex = sycl::ext::oneapi::experimental;
namespace ipc = sycl::ext::oneapi::experimental::ipc_memory;

constexpr size_t KiB = 1024, MiB = KiB * KiB;
static std::vector<device> devices;
static context *shared_context;

static std::string attempt(const std::function<std::string()> &act) {
    try {
        return act();
    } catch (const std::exception &e) {
        return std::string("throws ") + e.what();
    }
}

static void line(const std::string &name, const std::function<std::string()> &act) {
    std::string told = attempt(act);
    std::printf("%s: %s\n", name.c_str(), told.c_str());
    std::fflush(stdout);
}

static std::string kind(const void *p, const context &c) {
    return attempt([&] {
        switch (get_pointer_type(p, c)) {
        case usm::alloc::device:
            return "device";
        case usm::alloc::shared:
            return "shared";
        case usm::alloc::host:
            return "host";
        default:
            return "unknown";
        }
    });
}

static std::string owner(const void *p, const context &c) {
    return attempt([&] {
        for (size_t i = 0; i < devices.size(); i++)
            if (devices[i] == get_pointer_device(p, c))
                return std::to_string(i);
        return std::string("of nobody");
    });
}

// Its first and last bytes through copies and a fill.
static std::string data(char *p, size_t size, queue &q) {
    return attempt([&] {
        std::vector<unsigned char> in(std::min(size, 8 * KiB)), out(in.size());
        for (size_t i = 0; i < in.size(); i++)
            in[i] = static_cast<unsigned char>(i * 7 + size);
        q.memcpy(p, in.data(), in.size()).wait();
        q.memcpy(p + size - in.size(), in.data(), in.size()).wait();
        q.memcpy(out.data(), p + size - in.size(), out.size()).wait();
        bool right = in == out;
        q.memset(p, 0x11, size).wait();
        q.memcpy(out.data(), p, out.size()).wait();
        for (unsigned char c : out)
            right = right && c == 0x11;
        return right ? "right" : "WRONG";
    });
}

static std::string about(void *block, size_t size, size_t alignment, queue &q) {
    char *p = static_cast<char *>(block);
    if (!p)
        return "null";
    std::string s = reinterpret_cast<uintptr_t>(p) % (alignment ? alignment : 1) ? "not aligned " : "aligned ";
    s += kind(p, q.get_context()) + " " + owner(p, q.get_context());
    if (size)
        s += " to the last byte " + kind(p + size - 1, q.get_context()) + ", data " + data(p, size, q);
    return s;
}

// --- the forms -----------------------------------------------------------------------------------------------

static void forms() {
    int turn = 0;
    for (const device &d : devices) {
        queue q(*shared_context, d);
        const context &c = *shared_context;
        property_list none;
        const struct {
            const char *name;
            bool aligned;
            std::function<void *(size_t, size_t)> call;
        } calls[] = {
            {"malloc_device q", false, [&](size_t, size_t n) { return malloc_device(n, q); }},
            {"malloc_device q p", false, [&](size_t, size_t n) { return malloc_device(n, q, none); }},
            {"malloc_device d", false, [&](size_t, size_t n) { return malloc_device(n, d, c); }},
            {"malloc_device d p", false, [&](size_t, size_t n) { return malloc_device(n, d, c, none); }},
            {"malloc_device<T>", false, [&](size_t, size_t n) { return malloc_device<char>(n, q); }},
            {"malloc_shared q", false, [&](size_t, size_t n) { return malloc_shared(n, q); }},
            {"malloc_host c", false, [&](size_t, size_t n) { return malloc_host(n, c); }},
            {"malloc q device", false, [&](size_t, size_t n) { return malloc(n, q, usm::alloc::device); }},
            {"malloc d device", false, [&](size_t, size_t n) { return malloc(n, d, c, usm::alloc::device); }},
            {"malloc q shared", false, [&](size_t, size_t n) { return malloc(n, q, usm::alloc::shared); }},
            {"malloc q unknown", false, [&](size_t, size_t n) { return malloc(n, q, usm::alloc::unknown); }},
            {"aligned_alloc_device q", true, [&](size_t a, size_t n) { return aligned_alloc_device(a, n, q); }},
            {"aligned_alloc_device d", true, [&](size_t a, size_t n) { return aligned_alloc_device(a, n, d, c); }},
            {"aligned_alloc_device d p", true,
             [&](size_t a, size_t n) { return aligned_alloc_device(a, n, d, c, none); }},
            {"aligned_alloc_shared q", true, [&](size_t a, size_t n) { return aligned_alloc_shared(a, n, q); }},
            {"aligned_alloc_host c", true, [&](size_t a, size_t n) { return aligned_alloc_host(a, n, c); }},
            {"aligned_alloc q device", true,
             [&](size_t a, size_t n) { return aligned_alloc(a, n, q, usm::alloc::device); }},
            {"aligned_alloc d device", true,
             [&](size_t a, size_t n) { return aligned_alloc(a, n, d, c, usm::alloc::device); }},
        };
        for (auto &f : calls) {
            auto one = [&](size_t a, size_t n) {
                line(std::string(f.name) + " " + std::to_string(a) + " " + std::to_string(n), [&] {
                    void *p = f.call(a, n);
                    std::string s = about(p, n, a, q);
                    if (p && turn++ % 2)
                        sycl::free(p, c);
                    else if (p)
                        sycl::free(p, q);
                    return s;
                });
            };
            for (size_t n : {size_t(0), size_t(1), size_t(511), 64 * KiB, 2 * MiB, 4 * MiB + 1, size_t(1) << 41})
                if (!f.aligned)
                    one(0, n);
            for (size_t a : {size_t(0), size_t(1), size_t(3), size_t(64), size_t(96), size_t(512), 64 * KiB, 2 * MiB,
                             size_t(1) << 33})
                for (size_t n : {size_t(0), size_t(100), 2 * MiB})
                    if (f.aligned)
                        one(a, n);
        }
    }
}

// --- around them ---------------------------------------------------------------------------------------------

static void around(size_t n) {
    queue q(*shared_context, devices[0]);
    const context &c = *shared_context;
    auto with = [&](const std::function<std::string(char *)> &act) {
        char *p = malloc_device<char>(n, q);
        std::string s = attempt([&] { return act(p); });
        sycl::free(p, q);
        return s;
    };
    line("interior", [&] { return with([&](char *p) { return kind(p + n / 2, c); }); });
    line("hints", [&] {
        return with([&](char *p) {
            q.prefetch(p, n).wait();
            q.mem_advise(p, n, 0).wait();
            q.memcpy(p, p, 0).wait();
            return "done";
        });
    });
    line("device to device, in rows, across cards", [&] {
        return with([&](char *p) {
            std::vector<char> in(n, 9), out(n);
            char *there = malloc_device<char>(n, devices.back(), c);
            q.memcpy(p, in.data(), n).wait();
            q.memcpy(there, p, n).wait();
            q.memcpy(out.data(), there, n).wait();
            q.ext_oneapi_memcpy2d(out.data(), 64, there, 128, 64, 32).wait();
            sycl::free(there, c);
            return in == out ? "right" : "WRONG";
        });
    });
    line("allocator", [&] {
        std::vector<int, usm_allocator<int, usm::alloc::shared>> v(n / 4, 3, usm_allocator<int, usm::alloc::shared>(q));
        return std::to_string(v[n / 8]);
    });
    line("buffer", [&] {
        std::vector<int> v(n / 4, 1), w(n / 4, 7);
        {
            buffer<int> b(v.data(), v.size());
            q.submit([&](handler &h) { h.copy(w.data(), accessor(b, h, write_only)); }).wait();
        }
        return std::to_string(v[n / 8]);
    });
    line("property", [&] {
        char *p = malloc_device<char>(n, q, property_list{ext::oneapi::property::usm::device_read_only()});
        std::string s = about(p, n, 1, q);
        sycl::free(p, q);
        return s;
    });
    line("asynchronous", [&] {
        char *p = static_cast<char *>(ex::async_malloc(q, usm::alloc::device, n)), *r = malloc_device<char>(n, q);
        std::string s = data(p, n, q) + data(r, n, q);
        ex::async_free(q, p);
        ex::async_free(q, r);
        q.wait();
        return s;
    });
    line("freed in a command group", [&] {
        queue in_order(c, devices[0], property::queue::in_order());
        char *p = malloc_device<char>(n, q), byte = 0;
        in_order.memset(p, 6, n);
        in_order.memcpy(&byte, p + n - 1, 1);
        in_order.submit([&](handler &h) { ex::async_free(h, p); });
        in_order.wait();
        return std::to_string(byte);
    });
    line("ipc", [&] {
        return with([&](char *p) {
            auto h = ipc::get(p, c), again = ipc::get(p + n / 2, c);
            q.memset(p, 5, n).wait();
            char *o = static_cast<char *>(ipc::open(h.data(), c, devices[0])), byte = 0;
            char *twice = static_cast<char *>(ipc::open(h.data(), c, devices[0]));
            std::string s = o == twice ? "once " : "twice ";
            ipc::close(o, c);
            q.memcpy(&byte, twice + n - 1, 1).wait();
            s += std::to_string(byte) + kind(twice, c);
            ipc::close(twice, c);
            ipc::put(h, c);
            ipc::put(again, c);
            return s + data(p, n, q);
        });
    });
    line("ipc put after free", [&] {
        char *p = malloc_device<char>(n, q);
        auto h = ipc::get(p, c);
        sycl::free(p, q);
        ipc::put(h, c);
        return "done";
    });
}

static void odd() {
    queue q(*shared_context, devices[0]);
    const context &c = *shared_context;
    int x = 0;
    for (size_t n : {4 * KiB, 2 * MiB, 20 * MiB})
        around(n);
    line("free null", [&] { return sycl::free(nullptr, q), sycl::free(nullptr, c), "done"; });
    line("free stack", [&] { return sycl::free(&x, q), "done"; });
    line("ask null", [&] { return kind(nullptr, c); });
    line("ask stack", [&] { return kind(&x, c) + " " + owner(&x, c); });
    line("ipc stack", [&] { return ipc::get(&x, c), "got"; });
    line("ipc garbage", [&] { return ipc::open(ipc::handle_data_t(64), c, devices[0]), "opened"; });
    line("ipc close stack", [&] { return ipc::close(&x, c), "closed"; });
    line("async host", [&] { return ex::async_malloc(q, usm::alloc::host, 4096) ? "ok" : "null"; });
    line("sub-devices", [&] {
        using by = info::partition_property;
        return std::to_string(devices[0]
                                  .create_sub_devices<by::partition_by_affinity_domain>(
                                      info::partition_affinity_domain::next_partitionable)
                                  .size());
    });
    line("virtual", [&] {
        size_t n = 20 * MiB;
        uintptr_t base = ex::reserve_virtual_mem(2 * n, c);
        std::string s;
        {
            ex::physical_mem m(devices[0], c, n);
            m.map(base, n, ex::address_access_mode::read_write);
            s = data(reinterpret_cast<char *>(base), n, q) + kind(reinterpret_cast<char *>(base), c);
            ex::unmap(reinterpret_cast<void *>(base), n, c);
        }
        ex::free_virtual_mem(base, 2 * n, c);
        return s;
    });
}

static void contexts() {
    for (const device &d : devices) {
        context one(d);
        queue q(one, d);
        for (size_t n : {size_t(100), 2 * MiB, 20 * MiB}) {
            void *p = malloc_device(n, q);
            line("a context of its own", [&] { return about(p, n, 1, q); });
            line("asked by another", [&] { return kind(p, context(devices[0])); });
            line("freed through another", [&] { return sycl::free(p, context(d)), "done"; });
        }
        line("not of the context", [&] { return malloc_device(MiB, devices[&d == &devices[0]], one) ? "ok" : "null"; });
    }
    for (int round = 0; round < 3; round++) { // gone while blocks live
        queue q(context(devices), devices[0]);
        for (size_t n : {size_t(100), 2 * MiB, 20 * MiB})
            line("to be orphaned", [&] { return about(malloc_device(n, q), n, 1, q); });
    }
    line("many, one after the other", [&] {
        for (int round = 0; round < 300; round++) {
            context c(devices[0]);
            queue q(c, devices[0]);
            void *p = aligned_alloc_device(512, 2 * MiB, devices[0], c), *r = malloc_device(100 + round, q);
            if (!p || !r || kind(p, c) != "device")
                return "WRONG in round " + std::to_string(round);
            sycl::free(p, c);
            sycl::free(r, q);
        }
        return std::string("done");
    });
}

static void threads() {
    queue q(*shared_context, devices[0]);
    std::vector<std::thread> threads;
    std::vector<std::vector<char *>> left(8);
    for (auto &mine : left)
        threads.emplace_back([&] {
            for (int i = 0; i < 200; i++) {
                char *p = malloc_device<char>(i % 20 == 0 ? 20 * MiB : i % 3 ? 2 * MiB : 100, q);
                if (i % 9 == 3)
                    mine.push_back(p);
                else
                    sycl::free(p, q);
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (auto &blocks : left)
        for (char *p : blocks)
            line("of a thread that is gone", [&] {
                std::string s = data(p, 100, q);
                sycl::free(p, *shared_context);
                return s;
            });
}

static void forks() {
    queue q(*shared_context, devices[0]);
    char *p = malloc_device<char>(2 * MiB, q);
    for (bool exec : {false, true}) {
        std::fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (exec)
                execlp("true", "true", nullptr);
            _exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        line("after a child", [&] { return std::to_string(WEXITSTATUS(status)) + " " + data(p, 2 * MiB, q); });
    }
    sycl::free(p, q);
}

// Freed when the process, or a thread, ends.
struct AtEnd {
    queue *q = nullptr;
    void *small = nullptr, *large = nullptr;
    void hold(const queue &of) {
        q = new queue(of);
        small = malloc_device(4 * KiB, *q);
        large = malloc_device(20 * MiB, *q);
    }
    ~AtEnd() {
        if (q)
            line("at the end", [&] { return sycl::free(small, *q), sycl::free(large, q->get_context()), "freed"; });
    }
};
static AtEnd process_end;
static thread_local AtEnd thread_end;

static void ends() {
    queue q(*shared_context, devices[0]);
    std::thread([&] { thread_end.hold(q); }).join();
    thread_end.hold(q);
    process_end.hold(q);
    line("never freed", [&] { return about(malloc_device(4 * MiB, q), 4 * MiB, 1, q); });
}

// What UMF lets a program do with the pool of a block. Not under route:sycl, whose blocks lie in none of UMF's pools.
static void pool() {
    void *p = malloc_device(4 * KiB, devices[0], *shared_context), *of = nullptr,
         *umf = dlopen("libumf.so.1", RTLD_NOW);
    auto by_ptr = (int (*)(const void *, void **))dlsym(umf, "umfPoolByPtr");
    auto calloc_in = (void *(*)(void *, size_t, size_t))dlsym(umf, "umfPoolCalloc");
    auto realloc_in = (void *(*)(void *, void *, size_t))dlsym(umf, "umfPoolRealloc");
    auto last_error = (int (*)(void *))dlsym(umf, "umfPoolGetLastAllocationError");
    auto usable = (int (*)(void *, const void *, size_t *))dlsym(umf, "umfPoolMallocUsableSize");
    auto trim = (int (*)(void *, size_t))dlsym(umf, "umfPoolTrimMemory");
    queue q(*shared_context, devices[0]);
    size_t size = 0;

    line("pool of a block", [&] { return by_ptr(p, &of) == 0 && of ? "found" : "none"; });
    line("calloc", [&] { return (calloc_in(of, 1, 64) ? "a block " : "no block ") + std::to_string(last_error(of)); });
    line("realloc",
         [&] { return (realloc_in(of, p, 64) ? "a block " : "no block ") + std::to_string(last_error(of)); });
    line("usable",
         [&] { return std::to_string(usable(of, p, &size)) + (size >= 4 * KiB ? " enough" : " too little"); });
    sycl::free(p, *shared_context);
    line("trim", [&] { return std::to_string(trim(of, 0)); });
    p = malloc_device(4 * KiB, devices[0], *shared_context);
    line("after a trim", [&] { return data((char *)p, 4 * KiB, q); });
    sycl::free(p, q);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)();
    } acts[] = {{"forms", forms}, {"odd", odd},   {"contexts", contexts}, {"threads", threads},
                {"forks", forks}, {"pool", pool}, {"ends", ends}};
    struct rlimit files = {65536, 65536};

    setrlimit(RLIMIT_NOFILE, &files);
    devices = device::get_devices(info::device_type::gpu);
    if (devices.empty())
        return 1;
    static context context = devices[0].get_platform().ext_oneapi_get_default_context();
    shared_context = &context;
    for (auto &act : acts)
        for (int i = 1; i < argc; i++)
            if (std::strcmp(argv[i], act.name) == 0)
                act.run();
    return 0;
}
