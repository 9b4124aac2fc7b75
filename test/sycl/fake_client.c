/* Allocates and frees ten blocks through SYCL's entry points, with the runtime that it is linked to. */
#include <stddef.h>
#include <string.h>

struct object {
    void *implementation, *control;
};

void *
aligned_alloc_device(size_t alignment, size_t size, const void *device, const void *context, const void *code) __asm__(
    "_ZN4sycl3_V120aligned_alloc_deviceEmmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_locationE");
void sycl_free(void *ptr, const void *context,
               const void *code) __asm__("_ZN4sycl3_V14freeEPvRKNS0_7contextERKNS0_6detail13code_locationE");

int CLIENT(void);
int CLIENT(void) {
    /* A shared_ptr's control block: a table, two counts. */
    static struct {
        void **table;
        int strong, weak;
    } control = {NULL, 1, 1};
    struct object device = {&device, &control}, context = {&context, &control};
    char code[64] = {0};

    for (int i = 0; i < 10; i++) {
        char *p = aligned_alloc_device(512, 4096, &device, &context, code);

        if (!p)
            return 1;
        memset(p, i, 4096);
        sycl_free(p, &context, code);
    }
    return 0;
}

#ifdef SECOND
int SECOND(void);
int main(void) {
    return CLIENT() + SECOND();
}
#endif
#ifdef ALONE
int main(void) {
    return CLIENT();
}
#endif
