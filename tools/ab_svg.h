/* Drawings of the HTML report: plain SVG, no script; colours come from the page's style sheet. */
#ifndef ZEROUTE_AB_SVG_H
#define ZEROUTE_AB_SVG_H

#include "ab.h"

/* Text with <, >, & and quotes made harmless. */
void zr_html_text(FILE *f, const char *s);
/* One metric run by run in the order of time, with the median of each arm. */
void zr_svg_runs(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric);
/* Memory over time of one run, on axes that all arms share. */
void zr_svg_memory(FILE *f, const struct zr_ab_run *run, double base_available, double base_active,
                   double most_seconds, double most_bytes);
/* The largest value that zr_svg_memory would draw of this run. */
double zr_svg_memory_most(const struct zr_ab_run *run, double base_available, double base_active);

#endif
