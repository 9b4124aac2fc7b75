/* A library that marks the record while it is being loaded, with the dynamic linker's lock held. */
extern int marker_loads; /* of prog_loading.c */
void zeroute_mark(const char *text);

__attribute__((constructor)) static void mark(void) {
    __atomic_store_n(&marker_loads, 1, __ATOMIC_RELEASE);
    zeroute_mark("loading");
}
