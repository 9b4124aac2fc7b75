/* What this process runs on: first cut, notes only. */
#include "zeroute.h"

void zr_fingerprint_refresh(void)
{
}

void zr_fingerprint_note(const char *key, const char *value)
{
    (void)key;
    (void)value;
}

void zr_fork_child_fingerprint(void)
{
}
