/* Bytes as a record: raw, or as the chunks of a file with a right header. All that reads a record goes over it. */
#include "fuzz.h"

#include "report/report.h"

#include <string.h>

enum { CHUNK = 4096 };

/* The input without its first byte, behind a header, in chunks of three threads. */
static size_t wrap(const uint8_t *data, size_t size, uint8_t *to, size_t room) {
    struct zeroute_record_header header = {.magic = ZEROUTE_RECORD_MAGIC,
                                           .major = ZEROUTE_RECORD_MAJOR,
                                           .header_size = sizeof header,
                                           .chunk_size = CHUNK};
    size_t at = sizeof header, each = CHUNK - sizeof(struct zeroute_record_chunk);

    memcpy(to, &header, sizeof header);
    for (size_t done = 0; done < size && at + CHUNK <= room; done += each, at += CHUNK) {
        size_t part = size - done < each ? size - done : each;
        struct zeroute_record_chunk chunk = {ZEROUTE_CHUNK_MAGIC, 1 + (uint32_t)(done / each % 3), sizeof chunk + part,
                                             done / each};

        memset(to + at, 0, CHUNK);
        memcpy(to + at, &chunk, sizeof chunk);
        memcpy(to + at + sizeof chunk, data + done, part);
    }
    return at;
}

static void show(struct zr_record *r) {
    static FILE *out;
    struct zr_report report = {.record = r, .name = "fuzz"};
    struct zr_symbols *symbols = zr_symbols_new(r, "", true, NULL);

    if (!out)
        out = fopen("/dev/null", "w");
    report.paths = zr_paths_new(r, symbols);
    report.profile = zr_profile_new(r, report.paths, 100);
    must(report.profile != NULL);
    must(zr_report_page(out, &report, 1) && zr_report_text(out, &report, 1, 5) && zr_report_json(out, &report, 1, 5));
    must(zr_export_torch(out, &report) && zr_export_perfetto(out, &report, 1) && zr_export_csv(out, &report, 1));
    zr_profile_free(report.profile);
    zr_paths_free(report.paths);
    zr_symbols_free(symbols);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t file[16 * CHUNK];
    char path[64], why[512] = "";
    bool raw = size == 0 || data[0] & 1;
    size_t wrapped = raw ? 0 : wrap(data + 1, size - 1, file, sizeof file);
    int fd = raw ? fuzz_file(data + (size != 0), size - (size != 0)) : fuzz_file(file, wrapped);

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct zr_record *r = zr_record_load(path, why, sizeof why);
    must(r || *why);
    if (r)
        show(r);
    zr_record_free(r);
    return 0;
}
