/* A program that uses OpenCL and no Level Zero. Usage: opencl LIBRARY. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    return argc < 2 || !dlopen(argv[1], RTLD_NOW) || puts("done") < 0;
}
