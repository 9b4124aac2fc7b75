/* What the Level Zero programs of this folder share: a driver, its cards, a context, and checks. */
#ifndef ZE_TEST_H
#define ZE_TEST_H

#include "expect.h"
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARDS 4
#define SECOND 1000000000ull

static ze_driver_handle_t driver;
static ze_device_handle_t cards[CARDS];
static uint32_t card_count = CARDS;
static ze_context_handle_t context;

#define CHECK(call) EQUAL(call, ZE_RESULT_SUCCESS)

static inline void start(void) {
    uint32_t one = 1;
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    CHECK(zeInit(0));
    CHECK(zeDriverGet(&one, &driver));
    CHECK(zeDeviceGet(driver, &card_count, cards));
    CHECK(zeContextCreate(driver, &desc, &context));
}

static inline void *new_device(unsigned card, size_t size) {
    void *p = NULL;
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    CHECK(zeMemAllocDevice(context, &desc, size, 0, cards[card], &p));
    return p;
}

static inline void *new_host(size_t size) {
    void *p = NULL;
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    CHECK(zeMemAllocHost(context, &desc, size, 0, &p));
    return p;
}

static inline void *new_shared(unsigned card, size_t size) {
    void *p = NULL;
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    CHECK(zeMemAllocShared(context, &desc, &host, size, 0, cards[card], &p));
    return p;
}

/* The group that only copies: the blitter. */
static inline uint32_t copy_group(unsigned card) {
    ze_command_queue_group_properties_t groups[8];
    uint32_t count = 8;
    memset(groups, 0, sizeof(groups));
    CHECK(zeDeviceGetCommandQueueGroupProperties(cards[card], &count, groups));
    for (uint32_t i = 0; i < count; i++) {
        if (groups[i].flags == ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY)
            return i;
    }
    fprintf(stderr, "no copy group\n");
    exit(1);
}

static inline ze_command_list_handle_t new_list(unsigned card, uint32_t group) {
    ze_command_list_handle_t list;
    ze_command_queue_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = group, .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    CHECK(zeCommandListCreateImmediate(context, cards[card], &desc, &list));
    return list;
}

/* Events of a pool of their own, for the host to see. */
static inline ze_event_pool_handle_t new_events(ze_event_handle_t *events, uint32_t count,
                                                ze_event_pool_flags_t flags) {
    ze_event_pool_handle_t pool;
    ze_event_pool_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | flags, .count = count};
    CHECK(zeEventPoolCreate(context, &desc, 0, NULL, &pool));
    for (uint32_t i = 0; i < count; i++) {
        ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                 .index = i,
                                 .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                 .wait = ZE_EVENT_SCOPE_FLAG_HOST};
        CHECK(zeEventCreate(pool, &event, &events[i]));
    }
    return pool;
}

static inline void fill_random(void *p, size_t size, uint32_t seed) {
    uint8_t *bytes = p;
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static inline void expect_bytes(const char *what, const void *got, const void *want, size_t size) {
    const uint8_t *a = got, *b = want;
    if (!memcmp(a, b, size))
        return;
    size_t at = 0;
    while (a[at] == b[at])
        at++;
    fprintf(stderr, "%s: of %zu bytes the first that differs is %zu: %02x, expected %02x\n", what, size, at, a[at],
            b[at]);
    exit(1);
}

#endif
