/* UMF's disjoint pool over a driver that costs nothing, by the libumf.so.1 that comes with a SYCL runtime. */
#ifndef ZEROUTE_TEST_BENCH_UMF_H
#define ZEROUTE_TEST_BENCH_UMF_H

#include "../null_driver.h"

#include <dlfcn.h>

/* Its C interface, as much of it as is used here (ops of version 1.0). */
struct umf_provider_ops {
    uint32_t version;
    int (*initialize)(const void *params, void **provider);
    int (*finalize)(void *provider);
    int (*alloc)(void *provider, size_t size, size_t alignment, void **out);
    int (*free)(void *provider, void *p, size_t size);
    void (*last_error)(void *provider, const char **message, int32_t *code);
    int (*recommended_page)(void *provider, size_t size, size_t *page);
    int (*min_page)(void *provider, const void *p, size_t *page);
    int (*name)(void *provider, const char **name);
    void *optional[16];
};

static int umf_start(const void *params, void **provider) {
    (void)params;
    *provider = &null_next;
    return 0;
}

static int umf_end(void *provider) {
    (void)provider;
    return 0;
}

static int umf_alloc(void *provider, size_t size, size_t alignment, void **out) {
    (void)provider, (void)alignment;
    *out = null_address(size);
    return 0;
}

static int umf_free(void *provider, void *p, size_t size) {
    (void)provider, (void)p, (void)size;
    return 0;
}

static void umf_last_error(void *provider, const char **message, int32_t *code) {
    (void)provider;
    *message = "";
    *code = 0;
}

static int umf_page(void *provider, size_t size, size_t *page) {
    (void)provider, (void)size;
    *page = 65536;
    return 0;
}

static int umf_min_page(void *provider, const void *p, size_t *page) {
    (void)provider, (void)p;
    *page = 65536;
    return 0;
}

static int umf_name(void *provider, const char **name) {
    (void)provider;
    *name = "nothing";
    return 0;
}

static const struct umf_provider_ops umf_ops = {.version = 1 << 16,
                                                .initialize = umf_start,
                                                .finalize = umf_end,
                                                .alloc = umf_alloc,
                                                .free = umf_free,
                                                .last_error = umf_last_error,
                                                .recommended_page = umf_page,
                                                .min_page = umf_min_page,
                                                .name = umf_name};
static void *umf_pool;
static void *(*umf_pool_malloc)(void *pool, size_t size);
static int (*umf_pool_free)(void *pool, void *p);
static int (*umf_pool_by_pointer)(const void *p, void **pool);

static inline void *disjoint_get(size_t size) {
    return umf_pool_malloc(umf_pool, size);
}

static inline void disjoint_put(void *p) {
    umf_pool_free(umf_pool, p);
}

static inline bool open_umf(void) {
    void *lib = dlopen("libumf.so.1", RTLD_NOW), *params = NULL, *provider = NULL;
    int (*create_provider)(const void *, const void *, void **);
    int (*create_params)(void **);
    int (*set)(void *, size_t);
    const void *(*ops)(void);
    int (*create_pool)(const void *, void *, const void *, uint32_t, void **);

    if (!lib)
        return false;
    *(void **)&create_provider = dlsym(lib, "umfMemoryProviderCreate");
    *(void **)&create_params = dlsym(lib, "umfDisjointPoolParamsCreate");
    *(void **)&ops = dlsym(lib, "umfDisjointPoolOps");
    *(void **)&create_pool = dlsym(lib, "umfPoolCreate");
    *(void **)&umf_pool_malloc = dlsym(lib, "umfPoolMalloc");
    *(void **)&umf_pool_free = dlsym(lib, "umfPoolFree");
    *(void **)&umf_pool_by_pointer = dlsym(lib, "umfPoolByPtr");
    if (!create_provider || !create_params || !ops || !create_pool || create_provider(&umf_ops, NULL, &provider) ||
        create_params(&params))
        return false;
    /* All sizes pooled and nothing given back: its best case. Slabs and buckets as the SYCL runtime has them. */
    *(void **)&set = dlsym(lib, "umfDisjointPoolParamsSetMaxPoolableSize");
    set(params, (size_t)1 << 30);
    *(void **)&set = dlsym(lib, "umfDisjointPoolParamsSetCapacity");
    set(params, 4096);
    *(void **)&set = dlsym(lib, "umfDisjointPoolParamsSetSlabMinSize");
    set(params, 65536);
    *(void **)&set = dlsym(lib, "umfDisjointPoolParamsSetMinBucketSize");
    set(params, 64);
    return create_pool(ops(), provider, params, 0, &umf_pool) == 0;
}

/* Its tracker. */
static inline bool umf_knows(void *p) {
    void *of = NULL;

    return umf_pool_by_pointer(p, &of) == 0 && of == umf_pool;
}

#endif
