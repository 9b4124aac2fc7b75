/* Starting a program in our place. */
#ifndef ZEROUTE_LAUNCH_H
#define ZEROUTE_LAUNCH_H

#include <stdbool.h>

#define ZR_EXIT_OWN 125
#define ZR_EXIT_CANNOT 126
#define ZR_EXIT_NOT_FOUND 127

/*
 * Runs argv[0], looked for in PATH, with our environment, and waits. Signals sent to us go to it;
 * where it stops we stop. Returns its wait status; when it could not be executed, *exec_error is
 * the errno and the status is worth nothing.
 */
int zr_launch(char *const *argv, int *exec_error);
/* Ends like the program did: returns its exit code, or dies of its signal. */
int zr_end_like(int status);

#endif
