/* How doctor shows what it found. */
#ifndef ZEROUTE_TOOLS_DOCTOR_H
#define ZEROUTE_TOOLS_DOCTOR_H

#include "diagnosis.h"

#include <stdio.h>

/* One page for people; colours and width by the terminal. */
void zr_doctor_page(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d);
void zr_doctor_json(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d);

#endif
