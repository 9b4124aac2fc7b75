/*
 * Marks from every kind of frame, each after a line of the return addresses that libgcc's unwinder finds in the same
 * place.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*mark)(const char *);
static volatile int sink;

static __attribute__((noinline)) void here(void) {
    void *at[128];
    int n = backtrace(at, 128);

    for (int i = 1; i < n; i++)
        printf("%#lx ", (unsigned long)at[i]);
    printf("\n");
    mark("here");
    sink++;
}

static __attribute__((noinline)) void deep(int n) {
    if (n)
        deep(n - 1);
    else
        here();
    sink++;
}

static __attribute__((noinline)) void variable(size_t n) {
    char *p = alloca(n);

    memset(p, (int)n, n);
    here();
    sink += p[n - 1];
}

static __attribute__((noinline)) void aligned(int n) {
    _Alignas(64) volatile char wide[256];

    wide[n] = (char)n;
    if (n)
        aligned(n - 1);
    else
        variable(100);
    sink += wide[n];
}

static __attribute__((noinline)) void many(int n, ...) {
    va_list all;

    va_start(all, n);
    for (int i = 0; i < n; i++)
        sink += va_arg(all, int);
    va_end(all);
    here();
    sink++;
}

static int compare(const void *a, const void *b) {
    static int calls;

    if (calls++ == 0)
        aligned(2);
    return *(const int *)a - *(const int *)b;
}

static void *thread(void *unused) {
    int numbers[] = {3, 1, 2};

    (void)unused;
    deep(5);
    qsort(numbers, 3, sizeof *numbers, compare);
    many(3, 1, 2, 3);
    return NULL;
}

int main(void) {
    pthread_t other;

    mark = (void (*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "zeroute_mark");
    if (!mark)
        return 1;
    deep(0);
    deep(30);
    variable(5000);
    aligned(3);
    many(1, 1);
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    deep(110);
    return 0;
}
