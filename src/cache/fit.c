/* What a heap of free chunks takes when it has grown: see fit.h. */
#include "cache/fit.h"

/* Which of them is the lower one is anybody's guess: no branch. */
static inline struct chunk *meld(struct chunk *a, struct chunk *b)
{
    uintptr_t both = ((uintptr_t)a ^ (uintptr_t)b) & -(uintptr_t)(b->where < a->where);
    struct chunk *low = (struct chunk *)((uintptr_t)a ^ both), *high = (struct chunk *)((uintptr_t)b ^ both);

    fit_adopt(low, high);
    return low;
}

/* In pairs, then all of them from the last to the first: what makes the cost logarithmic in the long run. */
struct chunk *zr_fit_combine(struct chunk *first)
{
    struct chunk *pairs = NULL, *all;

    while (first) {
        struct chunk *a = first, *b = a->sibling;

        first = b ? b->sibling : NULL;
        if (b)
            a = meld(a, b);
        a->sibling = pairs;
        pairs = a;
    }
    for (all = pairs, pairs = all->sibling; pairs;) {
        struct chunk *next = pairs->sibling;

        all = meld(all, pairs);
        pairs = next;
    }
    return all;
}
