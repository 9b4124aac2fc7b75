/* The command: finds the subcommand. */
#include <stdio.h>

int main(void)
{
    printf("zeroute %s\n", ZEROUTE_VERSION);
    return 0;
}
