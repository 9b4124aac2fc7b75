// A SYCL client that asks for memory exactly as PyTorch does, host code only.
//
// PyTorch makes one aligned_alloc_device(512, n) per segment: 2 MiB for blocks up to 1 MiB, 20 MiB for
// blocks under 10 MiB, otherwise n rounded up to 2 MiB; it cuts tensors out of segments itself, synchronises its
// streams before it gives segments back, and on a null pointer frees what it caches and asks once more.
//
// It keeps its own books. Before and after each act it prints one line that a test compares with the segment:
//   books <act> <allocations asked> <refused> <frees asked> <live bytes of card 0> <of card 1> ...
// and, where ZEROUTE_STAT names a command, runs "$ZEROUTE_STAT <pid> <act>" and waits for it, so that the figures
// of both sides belong to the same moment. Data in every segment is compared before it is given back.
// Exit code: 0 all right, 1 something was wrong (said on stderr), 2 wrong arguments.

#include <sycl/sycl.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t MiB = size_t(1) << 20;
constexpr size_t kSmallBlock = 1 * MiB, kSmallSegment = 2 * MiB;
constexpr size_t kLargeBlock = 10 * MiB, kLargeSegment = 20 * MiB, kRound = 2 * MiB;

int failures;
size_t asked, refused, given_back; // calls of aligned_alloc_device, those that gave nothing, calls of free

void expect(bool ok, const char *what) {
    if (!ok) {
        failures++;
        std::fprintf(stderr, "torchlike: wrong: %s\n", what);
    }
}

size_t segment_size(size_t n) {
    if (n <= kSmallBlock)
        return kSmallSegment;
    if (n < kLargeBlock)
        return kLargeSegment;
    return (n + kRound - 1) / kRound * kRound;
}

#ifdef SYCL_EXT_ONEAPI_VIRTUAL_MEM
namespace ex = sycl::ext::oneapi::experimental;
using Physical = ex::physical_mem;
#else
struct Physical {};
#endif
constexpr size_t kSlot = 32 * MiB, kSlots = 4096; // of the range that expandable segments lie in

struct Segment {
    char *base;
    size_t size, used, live; // used grows by cutting; live counts the tensors in it
    unsigned char mark;
    std::shared_ptr<Physical> physical; // of an expandable one
};

struct Tensor {
    size_t segment;
    char *ptr;
    size_t size;
};

// One card's caching layer. Segments are never merged; a segment whose last tensor dies starts afresh.
class Card {
  public:
    Card(sycl::device device, sycl::context context)
        : device_(device), context_(context),
          queue_(context, device, sycl::property_list{sycl::property::queue::in_order()}),
          other_(context, device, sycl::property_list{sycl::property::queue::in_order()}) {
    }

    bool alloc(size_t n, Tensor *out) {
        n = (n + 511) / 512 * 512;
        for (size_t i = 0; i < segments_.size(); i++) {
            Segment &s = segments_[i];
            if (s.base && segment_size(n) == s.size && s.size - s.used >= n)
                return cut(i, n, out);
        }
        size_t want = segment_size(n);
        size_t at = 0;
        while (at < segments_.size() && segments_[at].base)
            at++;
        if (at == segments_.size())
            segments_.push_back({});
        Segment fresh = {nullptr, want, 0, 0, ++next_mark_, nullptr};
        if (!grab(at, &fresh)) {
            retries++;
            empty_cache();
            if (!grab(at, &fresh))
                return false;
        }
        segments_[at] = fresh;
        live_bytes += want;
        queue_.memset(fresh.base, fresh.mark, want < MiB ? want : MiB).wait();
        return cut(at, n, out);
    }

    void free(const Tensor &t) {
        Segment &s = segments_[t.segment];
        if (--s.live == 0)
            s.used = 0;
    }

    // As torch.xpu.empty_cache(): streams first, then every segment without a tensor goes back.
    void empty_cache() {
        queue_.wait();
        other_.wait();
        for (Segment &s : segments_) {
            if (!s.base || s.live)
                continue;
            check(s);
            give_back(s);
            given_back++;
            live_bytes -= s.size;
            s.base = nullptr;
        }
    }

    size_t free_memory() const {
        return device_.get_info<sycl::ext::intel::info::device::free_memory>();
    }

    sycl::queue &queue() {
        return queue_;
    }
    sycl::queue &other() {
        return other_;
    }
    const sycl::device &device() const {
        return device_;
    }
    const sycl::context &context() const {
        return context_;
    }

    size_t live_bytes = 0, retries = 0;

    // From now on segments are mapped into one reserved range. False: the runtime does not offer it.
    bool expand() {
#ifdef SYCL_EXT_ONEAPI_VIRTUAL_MEM
        range_ = ex::reserve_virtual_mem(0, kSlot * kSlots, context_);
#endif
        return range_ != 0;
    }

  private:
    // Out of memory is an exception there, and so is everything else.
    bool map(size_t slot, Segment *s) {
#ifdef SYCL_EXT_ONEAPI_VIRTUAL_MEM
        try {
            s->physical = std::make_shared<Physical>(device_, context_, s->size);
            s->base = static_cast<char *>(
                s->physical->map(range_ + slot * kSlot, s->size, ex::address_access_mode::read_write));
        } catch (const sycl::exception &e) {
            if (std::strstr(e.what(), "LOST"))
                throw;
            s->physical.reset();
            s->base = nullptr;
        }
#else
        (void)slot;
#endif
        return s->base;
    }

    void give_back(Segment &s) {
#ifdef SYCL_EXT_ONEAPI_VIRTUAL_MEM
        if (s.physical) {
            ex::unmap(s.base, s.size, context_);
            s.physical.reset();
            return;
        }
#endif
        sycl::free(s.base, context_);
    }

    bool grab(size_t slot, Segment *s) {
        asked++;
        if (range_)
            map(slot, s);
        else
            s->base = static_cast<char *>(sycl::aligned_alloc_device(512, s->size, device_, context_));
        refused += !s->base;
        expect(reinterpret_cast<uintptr_t>(s->base) % 512 == 0, "a segment is not aligned to 512 bytes");
        return s->base;
    }

    bool cut(size_t i, size_t n, Tensor *out) {
        Segment &s = segments_[i];
        *out = {i, s.base + s.used, n};
        s.used += n;
        s.live++;
        return true;
    }

    // The first page carries the segment's mark unless a tensor wrote there; tensors write their own mark.
    void check(const Segment &s) {
        unsigned char got[64];
        queue_.memcpy(got, s.base, sizeof got).wait();
        for (unsigned char c : got)
            expect(c == s.mark, "a segment's bytes changed while it was ours");
    }

    sycl::device device_;
    sycl::context context_;
    sycl::queue queue_, other_;
    std::vector<Segment> segments_;
    uintptr_t range_ = 0; // reserved for expandable segments; 0: none
    unsigned char next_mark_ = 0;
};

std::vector<Card> cards;

void books(const char *act) {
    std::printf("books %s %zu %zu %zu", act, asked, refused, given_back);
    for (size_t i = 0; i < cards.size(); i++)
        std::printf(" %zu", cards[i].live_bytes);
    std::printf("\n");
    std::fflush(stdout);
    if (const char *stat = std::getenv("ZEROUTE_STAT")) {
        std::string command = std::string(stat) + " " + std::to_string(getpid()) + " " + act;
        expect(std::system(command.c_str()) == 0, "the command of ZEROUTE_STAT failed");
    }
}

// Tensors of every class of size, some freed and reused: only new segments reach the runtime.
void tensors(const char *during, const char *after) {
    const size_t sizes[] = {512, 4096, 100000, MiB, MiB + 1, 4 * MiB, 9 * MiB, 10 * MiB, 33 * MiB + 7};
    for (Card &card : cards) {
        std::vector<Tensor> held;
        for (int round = 0; round < 3; round++) {
            for (size_t n : sizes) {
                Tensor t;
                expect(card.alloc(n, &t), "an allocation failed with memory to spare");
                held.push_back(t);
            }
            for (size_t i = 0; i < held.size(); i += 2)
                card.free(held[i]);
            std::vector<Tensor> rest;
            for (size_t i = 1; i < held.size(); i += 2)
                rest.push_back(held[i]);
            held.swap(rest);
        }
        for (const Tensor &t : held)
            card.free(t);
    }
    books(during);
    for (Card &card : cards)
        card.empty_cache();
    books(after);
}

void first_tensors() {
    tensors("tensors", "empty_cache");
}

// After empty_cache the same again: what is kept below is reused.
void more_tensors() {
    tensors("more_tensors", "empty_again");
}

// Data through two streams and back, and between cards byte by byte.
void copies() {
    const size_t n = 24 * MiB;
    std::vector<unsigned char> in(n), out(n);
    for (size_t i = 0; i < n; i++)
        in[i] = static_cast<unsigned char>(i * 31 + (i >> 12));
    void *pinned = sycl::malloc_host(n, cards[0].context());
    expect(pinned != nullptr, "pinned host memory was refused");
    std::memcpy(pinned, in.data(), n);
    std::vector<char *> there;
    for (Card &card : cards) {
        char *p = static_cast<char *>(sycl::aligned_alloc_device(512, n, card.device(), card.context()));
        asked++;
        expect(p != nullptr, "24 MiB were refused");
        card.live_bytes += n;
        there.push_back(p);
        card.queue().memcpy(p, pinned, n).wait();
        card.other().memcpy(out.data(), p, n).wait();
        expect(std::memcmp(in.data(), out.data(), n) == 0, "a copy to the card and back changed data");
        expect(sycl::get_pointer_type(p, card.context()) == sycl::usm::alloc::device,
               "a device pointer is not known as one");
        expect(sycl::get_pointer_type(p + n - 1, card.context()) == sycl::usm::alloc::device,
               "the last byte of a block is not known as device memory");
    }
    books("copies");
    for (size_t i = 1; i < cards.size(); i++) {
        std::memset(out.data(), 0, n);
        cards[i].queue().memset(there[i], 0, n).wait();
        cards[0].queue().memcpy(there[i], there[0], n).wait();
        cards[i].queue().memcpy(out.data(), there[i], n).wait();
        expect(std::memcmp(in.data(), out.data(), n) == 0, "a copy between cards changed data");
    }
    for (size_t i = 0; i < cards.size(); i++) {
        // Freed by a thread that did not allocate, through the queue's form.
        std::thread([&] { sycl::free(there[i], cards[i].queue()); }).join();
        given_back++;
        cards[i].live_bytes -= n;
    }
    sycl::free(pinned, cards[0].context());
    given_back++;
    books("copies_freed");
}

// Fill one card to the brim: a null pointer comes, the cache is given back, the request succeeds.
void out_of_memory() {
    Card &card = cards[0];
    std::vector<Tensor> held;
    const size_t n = 512 * MiB;
    Tensor t;
    while (held.size() < 4096 && card.alloc(n, &t))
        held.push_back(t);
    expect(held.size() < 4096, "the card never filled up");
    expect(!held.empty(), "not one large block could be had");
    expect(card.retries == 1, "running out was not met with one retry");
    books("full");
    for (const Tensor &h : held)
        card.free(h);
    expect(card.alloc(n / 2, &t), "nothing could be had after everything was freed");
    card.free(t);
    card.empty_cache();
    books("recovered");
}

// Fill a small card with segments, let most of the tensors die, and ask for one block as large as half of them: PyTorch
// meets the null pointer by giving back its cache. A card that spills never says no: 4 GiB are the most.
void retry() {
    Card &card = cards[0];
    std::vector<Tensor> held;
    Tensor t;
    while (card.live_bytes < 4096 * MiB && card.alloc(9 * MiB, &t))
        held.push_back(t);
    books("filled");
    size_t tries = card.retries, freed = card.live_bytes;
    for (const Tensor &h : held)
        card.free(h);
    expect(card.alloc(freed / 2, &t), "half of what was freed could not be had again");
    std::printf("retried %zu\n", card.retries - tries);
    card.free(t);
    card.empty_cache();
    books("retry");
}

// empty_cache and then a question for free memory: what was given back is free.
void free_memory() {
    for (Card &card : cards) {
        if (!card.device().has(sycl::aspect::ext_intel_free_memory))
            continue;
        card.empty_cache();
        size_t before = card.free_memory();
        Tensor t;
        expect(card.alloc(300 * MiB, &t), "300 MiB were refused");
        size_t during = card.free_memory();
        card.free(t);
        card.empty_cache();
        size_t after = card.free_memory();
        expect(before - during >= 300 * MiB, "300 MiB of use do not show in free memory");
        expect(after + 64 * MiB >= before, "memory given back does not show as free");
        std::printf("free_memory %zu %zu %zu\n", before, during, after);
    }
}

// expandable_segments: reserve once, create and map physical memory piece by piece.
void expandable() {
#ifdef SYCL_EXT_ONEAPI_VIRTUAL_MEM
    Card &card = cards[0];
    const size_t piece = 20 * MiB, total = 20 * piece;
    uintptr_t base = ex::reserve_virtual_mem(0, total, card.context());
    std::vector<ex::physical_mem> pieces;
    for (size_t i = 0; i < 3; i++) {
        pieces.emplace_back(card.device(), card.context(), piece);
        pieces.back().map(base + i * piece, piece, ex::address_access_mode::read_write);
        card.live_bytes += piece;
    }
    std::vector<unsigned char> in(3 * MiB, 0x5a), out(3 * MiB);
    char *across = reinterpret_cast<char *>(base + piece - MiB);
    card.queue().memcpy(across, in.data(), in.size()).wait();
    card.queue().memcpy(out.data(), across, out.size()).wait();
    expect(in == out, "data across two mapped pieces changed");
    books("expandable");
    for (size_t i = 0; i < 3; i++)
        ex::unmap(reinterpret_cast<void *>(base + i * piece), piece, card.context());
    card.live_bytes -= pieces.size() * piece;
    pieces.clear();
    ex::free_virtual_mem(base, total, card.context());
    books("expandable_freed");
#else
    std::printf("expandable: not offered by this runtime\n");
#endif
}

// Pinned memory that is freed and asked for again.
void pinned() {
    for (int i = 0; i < 4; i++) {
        void *p = sycl::malloc_host(64 * MiB, cards[0].context());
        expect(p != nullptr, "pinned host memory was refused");
        sycl::free(p, cards[0].context());
    }
}

// Tensors of random size and life for TORCHLIKE_SECONDS, beside whoever else uses the card. What cannot be had after
// the retry is an exception to PyTorch, and the program goes on with half of its tensors.
void crowded() {
    Card &card = cards[0];
    const char *seconds = std::getenv("TORCHLIKE_SECONDS"), *seed = std::getenv("TORCHLIKE_SEED");
    std::mt19937_64 random(seed ? std::strtoull(seed, nullptr, 10) : 1);
    auto end = std::chrono::steady_clock::now() +
               std::chrono::milliseconds(static_cast<long>(1000 * (seconds ? std::atof(seconds) : 3)));
    std::vector<Tensor> held;
    size_t raised = 0;
    Tensor t;
    while (std::chrono::steady_clock::now() < end) {
        size_t n = random() % 2 ? (1 + random() % 12) * MiB : (1 + random() % 4096) * 512;
        if (held.size() >= 1024 || (!held.empty() && random() % 3 == 0)) {
            std::swap(held[random() % held.size()], held.back());
            card.free(held.back());
            held.pop_back();
        } else if (card.alloc(n, &t)) {
            held.push_back(t);
        } else {
            raised++;
            for (size_t keep = held.size() / 2; held.size() > keep; held.pop_back())
                card.free(held.back());
        }
        if (random() % 2000 == 0)
            card.empty_cache();
    }
    for (const Tensor &h : held)
        card.free(h);
    card.empty_cache();
    std::printf("done: asked %zu, refused %zu, retried %zu, raised %zu\n", asked, refused, card.retries, raised);
}

// The same with expandable_segments:True.
void crowded_expandable() {
    if (cards[0].expand())
        crowded();
    else
        std::printf("expandable: not offered by this runtime\n");
}

struct Act {
    const char *name;
    void (*run)();
};
const Act acts[] = {{"tensors", first_tensors},
                    {"more_tensors", more_tensors},
                    {"copies", copies},
                    {"free_memory", free_memory},
                    {"out_of_memory", out_of_memory},
                    {"expandable", expandable},
                    {"retry", retry},
                    {"pinned", pinned},
                    {"crowded", crowded},
                    {"crowded_expandable", crowded_expandable}};

} // namespace

int main(int argc, char **argv) {
    std::vector<const Act *> plan;
    for (int i = 1; i < argc; i++) {
        const Act *found = nullptr;
        for (const Act &act : acts)
            if (std::strcmp(act.name, argv[i]) == 0)
                found = &act;
        if (!found) {
            std::fprintf(stderr, "torchlike: unknown act '%s'; known:", argv[i]);
            for (const Act &act : acts)
                std::fprintf(stderr, " %s", act.name);
            std::fprintf(stderr, "\n");
            return 2;
        }
        plan.push_back(found);
    }
    if (plan.empty())
        for (const Act &act : acts)
            if (&act < acts + 6) // tests ask for the others
                plan.push_back(&act);
    try {
        auto devices = sycl::device::get_devices(sycl::info::device_type::gpu);
        if (devices.empty()) {
            std::fprintf(stderr, "torchlike: no GPU found\n");
            return 1;
        }
        sycl::context all = devices[0].get_platform().ext_oneapi_get_default_context();
        for (const sycl::device &d : devices)
            if (d.get_platform() == devices[0].get_platform())
                cards.emplace_back(d, all);
        books("start");
        for (const Act *act : plan)
            act->run();
        books("end");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "torchlike: %s\n", e.what());
        return 1;
    }
    if (failures == 0)
        std::printf("torchlike: all right on %zu card(s)\n", cards.size());
    return failures != 0;
}
