// Small SYCL programs of one oddity each, host code only. Usage: corners ACT [ARGUMENTS]
//   reuse BYTES [ALIGNMENT]
//                   frees a block while a slow command still writes it, asks for another, and tells what became of it
//   hasty SEED      frees blocks at random while slow commands of several queues and cards, some after others, write
//                   them, waits for some of the commands in some way, and tells how many blocks it was given again and
//                   whose data was hurt
//   ordered [event] gives an in-order queue several commands for each block, waits for it, or for the last event, and
//                   frees the block
//   leak            never frees
//   orphans         never frees either, and lets each block's context go
//   peer            switches peer access on and off between allocations
//   late_peer [off] switches it on while blocks live, and off again
//   refused [kept]  asks for three blocks, with one freed before, and tells which it got
//   at_once         several threads ask for what fits only once all that lies unused has gone back; tells who got it
//   again           asks for the same many times, gives back in every way, and makes and leaves contexts
//   kept            asks each card how much memory is free, before blocks are allocated and after they are freed
//   contexts N [leave]
//                   makes N contexts in turn for each card and for all, and holds a block in each; then frees them, or
//                   leaves that to the contexts' end
//   ipc             exports blocks to a second process (itself, by exec) and compares data on both sides
//   ipc_own         opens handles of its own
//   ipc_freed BYTES exports a block, frees it while the second process has it open, and asks for as much again
// Exit code: 0 all right, 1 something was wrong, 3 not offered by this runtime.
#include <sycl/sycl.hpp>
#if __has_include(<sycl/ext/oneapi/experimental/ipc_memory.hpp>)
#include <sycl/ext/oneapi/experimental/ipc_memory.hpp>
#define HAS_IPC 1
#endif

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static std::vector<sycl::device> devices;
static sycl::context *all;

static size_t alignment = 512;

static char *take(size_t size, size_t card = 0) {
    return static_cast<char *>(sycl::aligned_alloc_device(alignment, size, devices[card], *all));
}

// The slow command needs copy_cost of the stand-in. The new owner writes a small part, by the other engine and so at
// once: the part that the slow command, which may go in pieces, writes last.
static int reuse(size_t size) {
    using clock = std::chrono::steady_clock;
    const size_t part = 64 << 10;
    sycl::queue slow(*all, devices[0]), fast(*all, devices[0]);
    std::vector<unsigned char> old(size, 0xaa), mine(part, 0x55), got(part);
    // Everything that is made on first use is made before.
    char *warm = take(size);
    fast.memset(warm, 0x55, part).wait();
    sycl::free(warm, *all);
    char *block = take(size);
    auto start = clock::now();
    sycl::event written = slow.memcpy(block, old.data(), size);
    sycl::free(block, *all);
    double waited = std::chrono::duration<double, std::milli>(clock::now() - start).count();
    char *next = take(size);
    fast.memset(next + size - part, 0x55, part).wait();
    written.wait();
    fast.memcpy(got.data(), next + size - part, part).wait();
    bool hurt = got != mine;
    sycl::free(next, *all);
    std::printf("waited %.0f same %d hurt %d\n", waited, next == block, hurt);
    return 0;
}

// As reuse(), at random: what a block holds at its end is its owner's mark, until the last command that its owner gives
// overwrites all of it; then it is freed, mostly before that command has ended.
namespace hasty {

constexpr size_t kPart = 64 << 10;
constexpr unsigned kSteps = 120, kLive = 6;

struct Block {
    char *ptr;
    size_t size;
    unsigned char mark;
};

struct Program {
    std::minstd_rand random;
    std::vector<sycl::queue> queues, marking; // marking: for each card, by the other engine
    std::vector<Block> live;
    std::vector<sycl::event> given;
    std::set<char *> freed;
    std::vector<unsigned char> garbage = std::vector<unsigned char>(size_t(20) << 20, 0xff);
    unsigned marks = 0, again = 0, hurt = 0;

    unsigned draw(unsigned below) {
        return random() / 7 % below;
    }

    void allocate() {
        size_t card = draw(unsigned(devices.size())), size = size_t(draw(3) ? 6 : 20) << 20;
        Block b = {take(size, card), size, static_cast<unsigned char>(1 + marks++ % 250)};

        if (!b.ptr)
            throw std::runtime_error("no memory");
        again += freed.count(b.ptr) != 0;
        marking[card].memset(b.ptr + size - kPart, b.mark, kPart).wait();
        live.push_back(b);
    }

    void check(const Block &b) {
        std::vector<unsigned char> got(kPart);

        marking[0].memcpy(got.data(), b.ptr + b.size - kPart, kPart).wait();
        hurt += got != std::vector<unsigned char>(kPart, b.mark);
    }

    void wait() {
        unsigned how = draw(4);

        if (how == 0)
            for (auto &queue : queues)
                queue.wait();
        else if (how < 3 && !given.empty())
            given[draw(unsigned(given.size()))].wait();
        else
            queues[draw(unsigned(queues.size()))].wait();
    }

    void release() {
        size_t n = draw(unsigned(live.size()));
        Block b = live[n];

        live.erase(live.begin() + long(n));
        check(b);
        std::vector<sycl::event> before;

        if (draw(2) && !given.empty())
            before.push_back(given[draw(unsigned(given.size()))]);
        given.push_back(queues[draw(unsigned(queues.size()))].memcpy(b.ptr, garbage.data(), b.size, before));
        if (draw(2))
            wait();
        freed.insert(b.ptr);
        sycl::free(b.ptr, *all);
    }

    void run() {
        for (auto &device : devices) {
            queues.emplace_back(*all, device, sycl::property_list{sycl::property::queue::in_order()});
            queues.emplace_back(*all, device);
            marking.emplace_back(*all, device);
        }
        for (unsigned step = 0; step < kSteps; step++) {
            if (live.size() < 2 || (live.size() < kLive && draw(2)))
                allocate();
            else
                release();
        }
        for (auto &queue : queues)
            queue.wait();
        for (auto &block : live) {
            check(block);
            sycl::free(block.ptr, *all);
        }
    }
};

} // namespace hasty

static int free_in_haste(unsigned long seed) {
    hasty::Program program;

    program.random.seed(static_cast<unsigned>(seed));
    program.run();
    std::printf("again %u hurt %u\n", program.again, program.hurt);
    return 0;
}

static int ordered(bool event) {
    constexpr unsigned blocks = 30, commands = 5;
    constexpr size_t piece = size_t(1) << 20;
    sycl::queue queue(*all, devices[0], sycl::property_list{sycl::property::queue::in_order()});
    std::vector<char> host(piece);

    for (unsigned i = 0; i < blocks; i++) {
        char *block = take(20 * piece);
        sycl::event last;

        for (unsigned k = 0; k < commands; k++)
            last =
                k % 2 ? queue.memset(block + k * piece, 1, piece) : queue.memcpy(block + k * piece, host.data(), piece);
        if (event)
            last.wait();
        else
            queue.wait();
        sycl::free(block, *all);
    }
    return 0;
}

static int leak() {
    for (size_t size : {size_t(512), size_t(2) << 20, size_t(20) << 20})
        if (!take(size))
            return 1;
    return 0;
}

static int orphans() {
    for (int round = 0; round < 20; round++) {
        sycl::context own(devices[0]);
        for (size_t size : {size_t(512), size_t(2) << 20})
            if (!sycl::malloc_device(size, devices[0], own))
                return 1;
    }
    return 0;
}

static int peer() {
    if (devices.size() < 2 ||
        !devices[0].ext_oneapi_can_access_peer(devices[1], sycl::ext::oneapi::peer_access::access_supported))
        return 3;
    const size_t size = 20 << 20;
    std::vector<unsigned char> in(size, 0x3c), out(size);
    sycl::queue queue(*all, devices[0]), other(*all, devices[1]);
    for (int step = 0; step < 3; step++) {
        if (step == 1)
            devices[0].ext_oneapi_enable_peer_access(devices[1]);
        if (step == 2)
            devices[0].ext_oneapi_disable_peer_access(devices[1]);
        char *here = take(size), *there = take(size, 1);
        std::fill(out.begin(), out.end(), 0);
        queue.memcpy(here, in.data(), size).wait();
        queue.memcpy(there, here, size).wait();
        other.memcpy(out.data(), there, size).wait();
        if (in != out)
            return 1;
        sycl::free(here, *all);
        sycl::free(there, *all);
    }
    return 0;
}

// Blocks live while peer access is switched on, and off again; what becomes of their residency, the segment tells.
static int late_peer(bool off) {
    std::vector<char *> blocks;
    for (size_t card = 0; card < devices.size(); card++)
        for (size_t size : {size_t(20) << 20, size_t(6) << 20})
            blocks.push_back(take(size, card));
    for (auto &a : devices)
        for (auto &b : devices)
            if (a != b)
                a.ext_oneapi_enable_peer_access(b);
    if (off)
        devices[0].ext_oneapi_disable_peer_access(devices[1]);
    for (char *block : blocks)
        sycl::free(block, *all);
    return 0;
}

// What a program gets when residency is refused (the setting `inject`).
static int refused(bool kept) {
    std::string told;
    if (kept) // a size that is kept when it is freed
        sycl::free(take(2 << 20), *all);
    for (size_t size : {size_t(20) << 20, size_t(20) << 20, size_t(6) << 20}) {
        char *p = take(size);
        told += p ? " ok" : " null";
        if (p)
            sycl::free(p, *all);
    }
    std::printf("%s\n", told.c_str() + 1);
    return 0;
}

// A limit that leaves no room for any of them beside what is kept: one gives it back, and it is enough for all.
static int at_once() {
    enum { THREADS = 4, SMALL = 120 };
    std::vector<std::thread> threads;
    std::vector<char *> small, large(THREADS);
    std::atomic<int> ready{0};
    std::string told;
    for (int i = 0; i < SMALL; i++)
        small.push_back(take(2 << 20));
    for (char *p : small)
        sycl::free(p, *all);
    for (char *&p : large)
        threads.emplace_back([&] {
            for (ready++; ready < THREADS;)
                ;
            p = take(size_t(24) << 20);
        });
    for (std::thread &t : threads)
        t.join();
    for (char *p : large) {
        told += p ? " ok" : " null";
        if (p)
            sycl::free(p, *all);
    }
    std::printf("%s\n", told.c_str() + 1);
    return 0;
}

// Each block holds what was written and is told of rightly, whichever way it came. Prints how many were asked for.
static int again() {
    unsigned asked = 0;
    for (size_t card = 0; card < devices.size(); card++) {
        sycl::context other(devices[card]);
        sycl::queue queue(*all, devices[card]);
        for (size_t size : {size_t(512), size_t(2) << 20, size_t(20) << 20})
            for (int i = 0; i < 20; i++, asked++) {
                char *p = i % 2 ? take(size, card) : static_cast<char *>(sycl::malloc_device(size, queue));
                std::vector<char> in(64, char(i + 1)), out(64);
                queue.memcpy(p + size - 64, in.data(), 64).wait();
                queue.memcpy(out.data(), p + size - 64, 64).wait();
                if (in != out || sycl::get_pointer_type(p, *all) != sycl::usm::alloc::device ||
                    sycl::get_pointer_device(p, *all) != devices[card])
                    return 1;
                switch (i % 4) {
                case 0:
                    sycl::free(p, *all);
                    break;
                case 1:
                    sycl::free(p, queue);
                    break;
                case 2:
                    std::thread([=] { sycl::free(p, *all); }).join();
                    break;
                default: // a context that never gave out anything: the runtime goes by the pointer
                    sycl::free(p, other);
                }
            }
    }
    for (int i = 0; i < 70; i++, asked += 2) {
        sycl::context context(devices[0]);
        for (int twice = 0; twice < 2; twice++)
            sycl::free(sycl::aligned_alloc_device(512, 4096, devices[0], context), context);
    }
    std::printf("%u\n", asked);
    return 0;
}

// Prints what is missing afterwards, of each card.
static int kept() {
    for (size_t card = 0; card < devices.size(); card++) {
        std::vector<char *> blocks;
        sycl::free(take(64, card), *all);
        auto free_memory = [&] { return devices[card].get_info<sycl::ext::intel::info::device::free_memory>(); };
        uint64_t before = free_memory();
        for (size_t size : {size_t(512), size_t(2) << 20, size_t(20) << 20})
            for (int i = 0; i < 12; i++)
                blocks.push_back(take(size, card));
        if (free_memory() > before - (200 << 20))
            return 1;
        for (char *p : blocks)
            sycl::free(p, *all);
        std::printf("%lld\n", (long long)(before - free_memory()));
    }
    return 0;
}

// Each block keeps what was written while the others come.
static int contexts(size_t count, bool leave) {
    struct held {
        sycl::context context;
        size_t card;
        char *block;
    };
    std::vector<held> all_held;
    for (size_t i = 0; i < count; i++) {
        size_t which = i % (devices.size() + 1), card = which < devices.size() ? which : i / 2 % devices.size();
        sycl::context own = which < devices.size() ? sycl::context(devices[card]) : sycl::context(devices);
        size_t size = i % 3 ? 4096 : 2 << 20;
        char *block = static_cast<char *>(sycl::malloc_device(size, devices[card], own));
        if (!block) {
            std::fprintf(stderr, "corners: nothing in context %zu\n", i);
            return 1;
        }
        if (i % 20 == 0) {
            sycl::queue queue(own, devices[card]);
            queue.memset(block, int(i % 251), 64).wait();
        }
        all_held.push_back({own, card, block});
    }
    for (size_t i = 0; i < count; i++) {
        held &h = all_held[i];
        if (i % 20 == 0) {
            sycl::queue queue(h.context, devices[h.card]);
            std::vector<unsigned char> in(64, (unsigned char)(i % 251)), out(64);
            queue.memcpy(out.data(), h.block, 64).wait();
            if (in != out)
                return 1;
        }
        if (!leave)
            sycl::free(h.block, h.context);
    }
    all_held.clear();
    std::printf("%zu\n", count);
    return 0;
}

#ifdef HAS_IPC
namespace ipc = sycl::ext::oneapi::experimental::ipc_memory;

static ipc::handle_data_t handle_in(const char *file) {
    std::ifstream in(file, std::ios::binary);
    std::vector<char> raw{std::istreambuf_iterator<char>(in), {}};
    ipc::handle_data_t data(raw.size());
    std::memcpy(data.data(), raw.data(), raw.size());
    return data;
}

static int importer(const char *file) {
    ipc::handle_data_t data = handle_in(file);
    sycl::queue queue(*all, devices[0]);
    std::vector<unsigned char> got(4096), mine(4096, 0x99);
    char *p = static_cast<char *>(ipc::open(data, *all, devices[0]));
    queue.memcpy(got.data(), p, got.size()).wait();
    for (unsigned char c : got)
        if (c != 0x42)
            return 1;
    queue.memcpy(p, mine.data(), mine.size()).wait();
    ipc::close(p, *all);
    return 0;
}

static int exporter(const char *self) {
    // A block's start, an address inside it, and a small block that shares its memory with others below.
    const struct { size_t size, offset; } cases[] = {{20 << 20, 0}, {20 << 20, 3 << 20}, {4096, 0}, {2 << 20, 1 << 20}};
    sycl::queue queue(*all, devices[0]);
    for (auto c : cases) {
        char *before = take(c.size), *block = take(c.size);
        std::vector<unsigned char> in(4096, 0x42), out(4096);
        queue.memset(block, 0, c.size).wait();
        queue.memcpy(block + c.offset, in.data(), in.size()).wait();
        auto handle = ipc::get(block + c.offset, *all);
        auto data = handle.data();
        std::string file = "/tmp/corners-ipc." + std::to_string(getpid());
        std::ofstream(file, std::ios::binary).write(reinterpret_cast<char *>(data.data()), data.size());
        pid_t child = fork();
        if (child == 0) {
            const char *bare = std::getenv("CORNERS_BARE");
            if (bare)
                setenv("LD_PRELOAD", bare, 1);
            execl(self, self, "import", file.c_str(), nullptr);
            _exit(127);
        }
        int status = 0;
        waitpid(child, &status, 0);
        unlink(file.c_str());
        if (status != 0) {
            std::fprintf(stderr, "corners: the importer of %zu at %zu ended with %d\n", c.size, c.offset, status);
            return 1;
        }
        queue.memcpy(out.data(), block + c.offset, out.size()).wait();
        for (unsigned char byte : out)
            if (byte != 0x99)
                return 1;
        ipc::put(handle, *all);
        sycl::free(block, *all);
        sycl::free(before, *all);
    }
    return 0;
}

// A handle opened by the process that made it leads to the same data.
static int own() {
    sycl::queue queue(*all, devices[0]);
    for (size_t size : {4096, 2 << 20, 20 << 20}) {
        char *block = take(size);
        std::vector<unsigned char> in(4096, 0x42), out(4096);
        queue.memcpy(block, in.data(), in.size()).wait();
        auto handle = ipc::get(block, *all);
        char *p = static_cast<char *>(ipc::open(handle.data(), *all, devices[0]));
        queue.memcpy(out.data(), p, out.size()).wait();
        std::printf("%zu: %s data\n", size, out == in ? "same" : "other");
        ipc::close(p, *all);
        ipc::put(handle, *all);
        sycl::free(block, *all);
    }
    return 0;
}

// Has the block open; looks at it whenever it reads a byte, and writes y or n.
static int holder(const char *file) {
    sycl::queue queue(*all, devices[0]);
    char *p = static_cast<char *>(ipc::open(handle_in(file), *all, devices[0])), asked;
    while (read(0, &asked, 1) == 1) {
        std::vector<unsigned char> got(4096), old(4096, 0x42);
        queue.memcpy(got.data(), p, got.size()).wait();
        if (write(1, got == old ? "y" : "n", 1) != 1)
            return 1;
    }
    ipc::close(p, *all);
    return 0;
}

// Whoever has opened a block sees its data for as long as he likes, whatever its first owner does next.
static int freed_exporter(const char *self, size_t size) {
    sycl::queue queue(*all, devices[0]);
    std::vector<char *> next;
    int to[2], from[2], status = 0;
    char before = 0, after = 0;
    char *block = take(size);
    queue.memset(block, 0x42, size).wait();
    auto handle = ipc::get(block, *all);
    auto data = handle.data();
    std::string file = "/tmp/corners-ipc." + std::to_string(getpid());
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<char *>(data.data()), data.size());
    if (pipe(to) != 0 || pipe(from) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        for (int fd : {to[0], to[1], from[0], from[1]})
            close(fd);
        execl(self, self, "hold", file.c_str(), nullptr);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    bool asked = write(to[1], "?", 1) == 1 && read(from[0], &before, 1) == 1;
    unlink(file.c_str());
    ipc::put(handle, *all);
    sycl::free(block, *all);
    for (int i = 0; i < 8; i++) {
        next.push_back(take(size));
        queue.memset(next.back(), 0x77, size).wait();
    }
    asked = asked && write(to[1], "?", 1) == 1 && read(from[0], &after, 1) == 1;
    close(to[1]);
    waitpid(child, &status, 0);
    for (char *p : next)
        sycl::free(p, *all);
    if (asked && before == 'y' && after == 'y' && status == 0)
        return 0;
    std::fprintf(stderr, "corners: %zu bytes: the importer saw the data before: %c, after: %c; it ended with %d\n",
                 size, before ? before : '-', after ? after : '-', status);
    return 1;
}
#else
static int importer(const char *) {
    return 3;
}
static int exporter(const char *) {
    return 3;
}
static int holder(const char *) {
    return 3;
}
static int freed_exporter(const char *, size_t) {
    return 3;
}
static int own() {
    return 3;
}
#endif

int main(int argc, char **argv) {
    std::string act = argc > 1 ? argv[1] : "";
    try {
        devices = sycl::device::get_devices(sycl::info::device_type::gpu);
        if (devices.empty()) {
            std::printf("no device\n");
            return 0;
        }
        static sycl::context context = devices[0].get_platform().ext_oneapi_get_default_context();
        all = &context;
        if (act == "reuse" && argc > 3)
            alignment = std::strtoull(argv[3], nullptr, 10);
        if (act == "reuse" && argc > 2)
            return reuse(std::strtoull(argv[2], nullptr, 10));
        if (act == "hasty" && argc > 2)
            return free_in_haste(std::strtoul(argv[2], nullptr, 10));
        if (act == "ordered")
            return ordered(argc > 2);
        if (act == "leak")
            return leak();
        if (act == "orphans")
            return orphans();
        if (act == "peer")
            return peer();
        if (act == "late_peer")
            return late_peer(argc > 2);
        if (act == "refused")
            return refused(argc > 2);
        if (act == "at_once")
            return at_once();
        if (act == "again")
            return again();
        if (act == "kept")
            return kept();
        if (act == "contexts" && argc > 2)
            return contexts(std::strtoull(argv[2], nullptr, 10), argc > 3);
        if (act == "ipc_freed" && argc > 2)
            return freed_exporter(argv[0], std::strtoull(argv[2], nullptr, 10));
        if (act == "ipc_own")
            return own();
        if (act == "hold" && argc > 2)
            return holder(argv[2]);
        if (act == "ipc")
            return exporter(argv[0]);
        if (act == "import" && argc > 2)
            return importer(argv[2]);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "corners: %s\n", e.what());
        return 1;
    }
    std::fprintf(stderr, "corners: unknown act '%s'\n", act.c_str());
    return 2;
}
