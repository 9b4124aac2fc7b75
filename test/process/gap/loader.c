/*
 * A loader for the guard's tests. WITHOUT leaves out one function of guard.def; with WITHOUT=all it exports none of
 * them. What is there returns 7, which no stub does.
 */
int zeInit(int flags);
int zeContextCreate(void *driver, const void *desc, void **out);
int zeDeviceGetProperties(void *device, void *properties);
static char context;
static int created;

int zeInit(int flags) {
    (void)flags;
    return 0;
}

int zeContextCreate(void *driver, const void *desc, void **out) {
    (void)driver, (void)desc;
    created++;
    *out = &context;
    return 0;
}

int zeDeviceGetProperties(void *device, void *properties) {
    (void)device, (void)properties;
    return 0;
}

/* How many contexts were made: an emulation makes one for a driver, however often it is asked. */
int gap_contexts(void);
int gap_contexts(void) {
    return created;
}

#ifndef WITHOUT_ALL
#define ZR_GAP(name, since, answer)                                                                                    \
    int name(void);                                                                                                    \
    int name(void) {                                                                                                   \
        return 7;                                                                                                      \
    }
#include "hook/guard.def"
#endif
