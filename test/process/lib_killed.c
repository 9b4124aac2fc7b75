/* kill -9 at the worst instant: the file of the segment is there, and nothing more. */
#include <signal.h>
#include <unistd.h>

int ftruncate(int fd, off_t size) {
    (void)fd, (void)size;
    kill(getpid(), SIGKILL);
    return 0;
}
