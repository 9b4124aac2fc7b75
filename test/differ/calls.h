/* What the operations of the random sequence share: the blocks that are held, the beds' handles, and chance. */
#ifndef CALLS_H
#define CALLS_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS 24
#define DEVICES 8
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum kind { DEVICE, HOST, SHARED, KINDS };
extern const char *const kind_name[KINDS];

struct slot {
    char *ptr;
    size_t size;
    enum kind kind;
    unsigned device, context;
    unsigned open_on;
    bool exported;
    ze_ipc_mem_handle_t ipc;
};

extern struct slot slots[SLOTS];
extern ze_driver_handle_t driver;
extern ze_device_handle_t devices[DEVICES];
extern uint32_t device_count;
extern ze_context_handle_t contexts[2];
extern ze_command_list_handle_t lists[DEVICES];

/* The numbers of this operation: to be drawn whatever the answers are. */
uint64_t next(void);
uint64_t below(uint64_t n);
size_t some_size(void);
void out(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* odd.c: what a program seldom does */
void op_chained(void);
void op_wrong(void);
void op_partly(void);
void op_few(void);
void op_pieces(void);
void op_shapes(void);
void op_elsewhere(void);
void op_anywhere(void);

#endif
