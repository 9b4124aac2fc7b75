/* As much of UMF 1.0 as an adapter of a SYCL runtime uses. */
#ifndef TURNSTILE_UMF_H
#define TURNSTILE_UMF_H

#include <stddef.h>
#include <stdint.h>

enum { UMF_SUCCESS = 0, UMF_OUT_OF_HOST_MEMORY = 1, UMF_INVALID_ARGUMENT = 3 };

struct umf_ops {
    uint32_t version;
    int (*initialize)(void *provider, const void *params, void **pool);
    int (*finalize)(void *pool);
    void *(*malloc)(void *pool, size_t size);
    void *(*calloc)(void *pool, size_t count, size_t size);
    void *(*realloc)(void *pool, void *ptr, size_t size);
    void *(*aligned_malloc)(void *pool, size_t size, size_t alignment);
    int (*malloc_usable_size)(void *pool, const void *ptr, size_t *size);
    int (*free)(void *pool, void *ptr);
    int (*get_last_allocation_error)(void *pool);
    int (*get_name)(void *pool, const char **name);
};
struct umf_provider { /* made by the adapter */
    int (*alloc)(void *arg, size_t size, size_t alignment, void **out);
    int (*free)(void *arg, void *ptr, size_t size);
    void *arg;
};
struct umf_pool;

const struct umf_ops *umfDisjointPoolOps(void);
int umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size);
int umfDisjointPoolParamsSetName(void *params, const char *name);
int umfPoolCreate(const struct umf_ops *ops, void *provider, const void *params, uint32_t flags, struct umf_pool **out);
void umfPoolDestroy(struct umf_pool *pool);
void *umfPoolAlignedMalloc(struct umf_pool *pool, size_t size, size_t alignment);
/* By the pool that it came from. */
int umfFree(void *ptr);
int umfMemoryProviderAlloc(void *provider, size_t size, size_t alignment, void **out);
int umfMemoryProviderFree(void *provider, void *ptr, size_t size);

#endif
