/* Bytes as a comparison that `zeroute ab --json` has saved: read, analysed and reported in every form. */
#include "fuzz.h"

#include "ab/ab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void (*const write[])(FILE *, const struct zr_ab_report *) = {zr_ab_report_terminal, zr_ab_report_markdown,
                                                                  zr_ab_report_html, zr_ab_report_json};
    static struct zr_ab ab;
    static struct zr_ab_analysis an;
    static struct zr_ab_report report;
    static FILE *nowhere;
    char path[64], *wrong;

    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    must(nowhere != NULL);
    ab = (struct zr_ab){0};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fuzz_file(data, size));
    wrong = zr_ab_load(&ab, path);
    if (!wrong) {
        an = (struct zr_ab_analysis){0};
        zr_ab_analyse(&ab, &an);
        zr_ab_report_build(&report, &ab, &an);
        for (size_t i = 0; i < sizeof write / sizeof *write; i++)
            write[i](nowhere, &report);
        zr_ab_report_clear(&report);
        zr_ab_analysis_clear(&an);
    }
    free(wrong);
    zr_ab_clear(&ab);
    return 0;
}
