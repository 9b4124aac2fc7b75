/* Linked against the loader, as SYCL runtimes up to 2025.1, llama.cpp and Triton are. */
#include "way.h"

int main(void) {
#define F(name) .name = name,
    struct way way = {WAY_FUNCTIONS(F)};
    return way_run(&way);
}
