/* Comes after the program in the order and defines what the program asks the next of. */
const char *which(void);
const char *which(void) {
    return "second";
}
