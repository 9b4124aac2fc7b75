/*
 * Copies and fills, as the driver puts them for Xe2: MEM_COPY, MEM_SET, XY_BLOCK_COPY_BLT and
 * XY_FAST_COLOR_BLT. Memory of the process itself is read and written through the kernel, so that a
 * page that the program has taken away in the meantime is an error and not a crash.
 */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define BOUNCE (1u << 20)

static _Atomic int self_memory = -1;

/* The descriptor would be of the parent's memory. */
void xs_blit_forked(void) {
    if (self_memory >= 0)
        close(self_memory);
    self_memory = -1;
}

/* Pages that are protected just now (the driver's own migration of shared memory) still have content. */
static bool peek_protected(void *mine, uint64_t theirs, size_t length, bool write) {
    if (self_memory < 0)
        self_memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    ssize_t done =
        write ? pwrite(self_memory, mine, length, (off_t)theirs) : pread(self_memory, mine, length, (off_t)theirs);
    return done == (ssize_t)length;
}

static bool user_copy(void *mine, uint8_t *theirs, size_t length, bool write) {
    struct iovec local = {mine, length}, remote = {theirs, length};
    ssize_t done = write ? process_vm_writev(getpid(), &local, 1, &remote, 1, 0)
                         : process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (done == (ssize_t)length)
        return true;
    if (done < 0 && errno != EFAULT && errno != EPERM && errno != ENOSYS)
        return false;
    return peek_protected(mine, (uintptr_t)theirs, length, write);
}

static bool move_spans(struct xs_span *to, struct xs_span *from, size_t length) {
    if (!to->user && !from->user) {
        memmove(to->at, from->at, length);
        return true;
    }
    if (!to->user)
        return user_copy(to->at, from->at, length, false);
    if (!from->user)
        return user_copy(from->at, to->at, length, true);
    uint8_t *bounce = malloc(BOUNCE);
    bool fine = bounce != NULL;
    for (size_t done = 0; fine && done < length;) {
        size_t now = length - done < BOUNCE ? length - done : BOUNCE;
        fine = user_copy(bounce, from->at + done, now, false) && user_copy(bounce, to->at + done, now, true);
        done += now;
    }
    free(bounce);
    return fine;
}

static bool fault(uint64_t address) {
    xs_vm_fault(address, "a copy or fill found nothing");
    return false;
}

bool xs_move(struct xs_vm *vm, uint64_t to, uint64_t from, uint64_t bytes) {
    if (xs_unlikely(xs_config.log))
        xs_say("copy of %llu bytes from 0x%llx to 0x%llx", (unsigned long long)bytes, (unsigned long long)from,
               (unsigned long long)to);
    while (bytes) {
        struct xs_span target, source;
        if (!xs_vm_pin(vm, to, &target))
            return fault(to);
        if (!xs_vm_pin(vm, from, &source)) {
            xs_vm_unpin(&target);
            return fault(from);
        }
        uint64_t now = bytes < target.length ? bytes : target.length;
        now = now < source.length ? now : source.length;
        bool fine = move_spans(&target, &source, now);
        xs_vm_unpin(&target);
        xs_vm_unpin(&source);
        if (!fine)
            return fault(from);
        to += now;
        from += now;
        bytes -= now;
    }
    return true;
}

static void repeat(uint8_t *out, size_t length, const uint8_t *pattern, unsigned width, uint64_t phase) {
    if (width == 1) {
        memset(out, pattern[0], length);
        return;
    }
    size_t done = length < width ? length : width;
    for (size_t i = 0; i < done; i++)
        out[i] = pattern[(phase + i) % width];
    while (done < length) {
        size_t now = length - done < done ? length - done : done;
        memcpy(out + done, out, now);
        done += now;
    }
}

bool xs_fill(struct xs_vm *vm, uint64_t to, const uint8_t *pattern, unsigned width, uint64_t bytes) {
    if (xs_unlikely(xs_config.log))
        xs_say("fill of %llu bytes at 0x%llx with a pattern of %u", (unsigned long long)bytes, (unsigned long long)to,
               width);
    uint64_t phase = 0;
    while (bytes) {
        struct xs_span target;
        if (!xs_vm_pin(vm, to, &target))
            return fault(to);
        uint64_t now = bytes < target.length ? bytes : target.length;
        bool fine = true;
        if (target.user) {
            now = now < BOUNCE ? now : BOUNCE;
            uint8_t *bounce = malloc(now);
            fine = bounce != NULL;
            if (fine) {
                repeat(bounce, now, pattern, width, phase);
                fine = user_copy(bounce, target.at, now, true);
            }
            free(bounce);
        } else {
            repeat(target.at, now, pattern, width, phase);
        }
        xs_vm_unpin(&target);
        if (!fine)
            return fault(to);
        to += now;
        phase += now;
        bytes -= now;
    }
    return true;
}

/* copy_cost: the bytes of a large copy or fill stay what they were for that long. */
void xs_take_time(struct xs_context *context, uint64_t bytes) {
    if (!xs_config.copy_cost || bytes < xs_config.copy_floor)
        return;
    uint64_t end = xs_now() + xs_config.copy_cost;
    for (uint64_t now; (now = xs_now()) < end && !context->stop;)
        xs_event_wait(XS_ANY_ADDRESS, xs_event_seen(XS_ANY_ADDRESS), end - now < 1000000 ? end - now : 1000000);
}

static uint64_t address_at(const uint32_t *command, unsigned index) {
    return command[index] | (uint64_t)command[index + 1] << 32;
}

struct rectangle {
    uint64_t to, from;
    uint64_t width, height; /* bytes, rows */
    uint64_t to_pitch, from_pitch;
};

/* copy_loses, copy_hangs: how much of a copy arrives. */
static uint64_t bytes_that_arrive(struct xs_context *context, uint64_t bytes) {
    enum { PAGE = 4096 };
    static _Atomic uint64_t copies;
    uint64_t nth;

    if (!(xs_config.copy_loses || xs_config.copy_hangs) || bytes < PAGE)
        return bytes;
    nth = ++copies;
    while (nth == xs_config.copy_hangs && !context->stop)
        xs_event_wait(XS_ANY_ADDRESS, xs_event_seen(XS_ANY_ADDRESS), 1000000);
    return nth == xs_config.copy_loses ? bytes - PAGE : bytes;
}

static void copy_rows(struct xs_context *context, const struct rectangle *r) {
    xs_take_time(context, r->width * r->height);
    xs_count(XS_C_copies, 1);
    xs_count(XS_C_copy_bytes, r->width * r->height);
    if (r->to_pitch == r->width && r->from_pitch == r->width) {
        xs_move(context->vm, r->to, r->from, bytes_that_arrive(context, r->width * r->height));
        return;
    }
    for (uint64_t row = 0; row < r->height; row++) {
        if (!xs_move(context->vm, r->to + row * r->to_pitch, r->from + row * r->from_pitch, r->width))
            return;
    }
}

static void fill_rows(struct xs_context *context, const struct rectangle *r, const uint8_t *pattern, unsigned width) {
    xs_take_time(context, r->width * r->height);
    xs_count(XS_C_fills, 1);
    xs_count(XS_C_fill_bytes, r->width * r->height);
    if (r->to_pitch == r->width) {
        xs_fill(context->vm, r->to, pattern, width, r->width * r->height);
        return;
    }
    for (uint64_t row = 0; row < r->height; row++) {
        if (!xs_fill(context->vm, r->to + row * r->to_pitch, pattern, width, r->width))
            return;
    }
}

void xs_blit_memcopy(struct xs_context *context, const uint32_t *command) {
    const unsigned page = command[0] >> 19 & 1 ? 256 : 1;
    bool matrix = command[0] >> 17 & 1;
    struct rectangle r = {
        .width = ((command[1] & 0xffffff) + 1ull) * page,
        .height = matrix ? (command[2] & 0x3ffff) + 1ull : 1,
        .from_pitch = (command[3] & 0x3ffff) + 1ull,
        .to_pitch = (command[4] & 0x3ffff) + 1ull,
        .from = address_at(command, 5),
        .to = address_at(command, 7),
    };
    copy_rows(context, &r);
}

void xs_blit_memset(struct xs_context *context, const uint32_t *command) {
    bool matrix = command[0] >> 17 & 1;
    uint8_t value = (uint8_t)(command[6] >> 24);
    struct rectangle r = {
        .width = (command[1] & 0xffffff) + 1ull,
        .height = matrix ? (command[2] & 0x3ffff) + 1ull : 1,
        .to_pitch = (command[3] & 0x3ffff) + 1ull,
        .to = address_at(command, 4),
    };
    fill_rows(context, &r, &value, 1);
}

static unsigned pixel_bytes(uint32_t first) {
    static const uint8_t bytes[] = {1, 2, 4, 8, 12, 16, 1, 1};
    return bytes[first >> 19 & 7];
}

/* Only linear surfaces; a tiled one would need the tile's own order of bytes. */
void xs_blit_copy(struct xs_context *context, const uint32_t *command) {
    unsigned pixel = pixel_bytes(command[0]);
    unsigned left = command[2] & 0xffff, top = command[2] >> 16;
    unsigned right = command[3] & 0xffff, bottom = command[3] >> 16;
    unsigned from_left = command[7] & 0xffff, from_top = command[7] >> 16;
    if (command[1] >> 30 || command[8] >> 30)
        xs_count(XS_C_unknown_commands, 1);
    struct rectangle r = {
        .width = (uint64_t)(right - left) * pixel,
        .height = bottom - top,
        .to_pitch = (command[1] & 0x3ffff) + 1ull,
        .from_pitch = (command[8] & 0x3ffff) + 1ull,
    };
    r.to = address_at(command, 4) + top * r.to_pitch + (uint64_t)left * pixel;
    r.from = address_at(command, 9) + from_top * r.from_pitch + (uint64_t)from_left * pixel;
    if (right > left && bottom > top)
        copy_rows(context, &r);
}

void xs_blit_color(struct xs_context *context, const uint32_t *command) {
    unsigned pixel = pixel_bytes(command[0]);
    unsigned left = command[2] & 0xffff, top = command[2] >> 16;
    unsigned right = command[3] & 0xffff, bottom = command[3] >> 16;
    uint8_t pattern[16];
    memcpy(pattern, &command[7], sizeof(pattern));
    if (command[1] >> 30)
        xs_count(XS_C_unknown_commands, 1);
    struct rectangle r = {
        .width = (uint64_t)(right - left) * pixel,
        .height = bottom - top,
        .to_pitch = (command[1] & 0x3ffff) + 1ull,
    };
    r.to = address_at(command, 4) + top * r.to_pitch + (uint64_t)left * pixel;
    if (right > left && bottom > top)
        fill_rows(context, &r, pattern, pixel);
}
