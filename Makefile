# zeroute: one Makefile, no generator. `make help` lists the targets.
# A new .c file in a known folder is picked up by itself.

MAKEFLAGS += --no-builtin-rules

CC      ?= cc
CFLAGS  ?= -O3 -g
PREFIX  ?= /usr/local
DESTDIR ?=
B       ?= build
SAN     ?=
COV     ?=

VERSION := 0.2.0
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wcast-align -Wwrite-strings -Wvla
BASE    := -std=gnu11 -D_GNU_SOURCE -DZEROUTE_VERSION='"$(VERSION)"' $(WARN) -Iinclude -Isrc -Itools -MMD -MP \
           $(if $(COV),,-ffile-prefix-map=$(CURDIR)=.) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
LDSAN   := $(if $(SAN),-fsanitize=$(SAN)) $(if $(COV),--coverage)

# --- the preload: libc alone, every glibc from 2.28 on ---------------------------------------------
LIB_SRC := $(wildcard src/*/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/lib/%.o)
LIB_CFLAGS := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fexceptions -fno-plt -mtune=skylake
LIB_LDFLAGS := -shared -Wl,-soname,libzeroute.so -Wl,--version-script=src/libzeroute.map \
               -Wl,-z,defs -Wl,-z,now -Wl,-z,relro

# The allocator by itself, as the command, the benchmarks and the fuzzer use it.
ALLOC_SRC := $(wildcard src/cache/*.c) src/base/pages.c src/base/lifecycle.c src/base/log.c src/base/entries.c

# --- the command ------------------------------------------------------------------------------------
TOOL_SRC := $(wildcard tools/*.c tools/*/*.c)
TOOL_OBJ := $(TOOL_SRC:%.c=$(B)/tool/%.o) $(B)/tool/tools/bed/simgpu/config.o \
            $(patsubst %.c,$(B)/tool/%.o,$(ALLOC_SRC) src/base/settings.c)
# Parts of pages, linked in as they are: each a text, ended by a NUL.
PAGE_SRC := $(wildcard tools/report/*.html tools/report/*.css tools/report/*.js) $(wildcard tools/watch/page/*)
TOOL_OBJ += $(PAGE_SRC:%=$(B)/tool/%.o)
TOOL_LIBS := -lmicrohttpd -lncursesw -ltinfo -ljansson -lmd -lm -ldl -lpthread
# For other machines (packaging/portable): libraries that most lack are inside; there is no static libmicrohttpd that
# stands alone, so zeroute serve writes files there and does not listen.
ifdef PORTABLE
TOOL_LIBS := $(foreach l,ncursesw tinfo jansson md,$(firstword $(wildcard /usr/lib/*-linux-gnu/lib$l.a))) -lm -ldl -lpthread
$(B)/tool/tools/watch/http.o $(B)/tool/tools/common/version.o: BASE += -DZR_WITHOUT_HTTP
endif

# --- the simulated GPU ------------------------------------------------------------------------------
SIM_SRC := $(wildcard tools/bed/simgpu/*.c)
SIM_OBJ := $(SIM_SRC:%.c=$(B)/sim/%.o)

# --- the stand-in xe device: nothing of ours, a preload for the real driver (tools/bed/standin/README.md)
STANDIN_SRC := $(wildcard tools/bed/standin/*.c)
STANDIN_OBJ := $(STANDIN_SRC:%.c=$(B)/standin/%.o)
STANDIN_BIN := $(patsubst test/driver/prog_%.c,$(B)/test/driver/%,$(wildcard test/driver/prog_*.c))

# --- tests: test/unit/test_*.c are Check suites; test/process/prog_*.c are small programs -----------
UNIT_SRC := $(wildcard test/unit/*.c)
UNIT_BIN := $(patsubst test/unit/test_%.c,$(B)/test/unit/%,$(filter test/unit/test_%,$(UNIT_SRC)))
PROG_SRC := $(wildcard test/process/prog_*.c)
PROG_BIN := $(PROG_SRC:test/process/prog_%.c=$(B)/test/process/%)
PROC_SRC := $(wildcard test/process/test_*.c)
PROC_BIN := $(PROC_SRC:test/process/test_%.c=$(B)/test/process/suite_%)
PLIB_SRC := $(wildcard test/process/lib_*.c)
PLIB_BIN := $(PLIB_SRC:test/process/lib_%.c=$(B)/test/process/lib%.so)
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck)

.PHONY: all run tests test check bench install clean help lint analyze tidy coverage
#: all        the preload, the command and the simulated GPU, in build/
all: $(if $(LIB_SRC),$(B)/libzeroute.so) $(if $(wildcard tools/zeroute.c),$(B)/zeroute) $(if $(SIM_SRC),$(B)/libze_simgpu.so)

# --- the program of the first command, and what installs -------------------------------------------------
$(B)/demo: examples/demo.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $< -o $@ -l:libze_loader.so.1
#: run        what the README shows first: on a GPU, or on the simulated one
run: all $(B)/demo
	@B=$(B) sh examples/first-look

$(B)/lib/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(LIB_CFLAGS) $(CFLAGS) $(COV) -c $< -o $@
$(B)/tool/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(COV) -c $< -o $@
$(B)/tool/src/cache/%.o: COV += -DZR_VIRTUAL_CLOCK
$(PAGE_SRC:%=$(B)/tool/%.o): $(B)/tool/%.o: %
	@mkdir -p $(@D)
	@{ echo 'const char zr_part_$(subst .,_,$(<F))[] = {'; od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo '0};'; } >$@.c
	$(CC) $(filter -ffile-prefix-map=%,$(BASE)) $(CFLAGS) -c $@.c -o $@
$(B)/sim/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC -fvisibility=hidden $(CFLAGS) -c $< -o $@

$(B)/standin/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC -fvisibility=hidden $(CFLAGS) -c $< -o $@

# What holds the version is made again when it changes.
VERSIONED := $(shell grep -l ZEROUTE_VERSION $(LIB_SRC) $(TOOL_SRC))
$(VERSIONED:%.c=$(B)/lib/%.o) $(VERSIONED:%.c=$(B)/tool/%.o): Makefile

# For other machines: before glibc 2.34 dlsym and the like are libdl's. Opening it takes a quarter of our start, so the
# library for this machine needs it only where this machine does.
LIBDL := -ldl
$(B)/portable/libzeroute.so: LIBDL := -Wl,--no-as-needed -l:libdl.so.2
$(B)/libzeroute.so $(B)/portable/libzeroute.so: $(LIB_OBJ) src/libzeroute.map
	@mkdir -p $(@D)
	$(CC) $(LDSAN) $(LDFLAGS) -o $@ $(LIB_OBJ) $(LIB_LDFLAGS) $(LIBDL)
$(B)/zeroute: $(TOOL_OBJ)
	$(CC) $(LDSAN) $(LDFLAGS) -Wl,-z,now -Wl,-z,relro -o $@ $(TOOL_OBJ) $(TOOL_LIBS)
$(B)/libze_simgpu.so: $(SIM_OBJ)
	$(CC) $(LDSAN) $(LDFLAGS) -shared -Wl,-soname,libze_simgpu.so -Wl,-z,defs -Wl,-z,nodelete -o $@ $(SIM_OBJ) -lpthread
$(B)/libxe_standin.so: $(STANDIN_OBJ)
	$(CC) $(LDSAN) $(LDFLAGS) -shared -Wl,-soname,libxe_standin.so -Wl,-z,defs -o $@ $(STANDIN_OBJ) -lpthread

# --- beds: keeps a bed's children on the bed (tools/bed/bed) -----------------------------------------------
$(B)/libbed_stay.so: tools/bed/stay/stay.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -fPIC -shared -Wl,-soname,libbed_stay.so -o $@ $< -ldl

# --- tests --------------------------------------------------------------------------------------------
# Suites are compiled, and link what they need from archives of the library's and the tool's objects; they are linked
# again when one of the objects changes that they took (the linker tells which), not with every change of an archive.
# An object whose source is gone since is taken from another place now.
# Without what needs the dlsym of the entries: a program has its own unwinder.
$(B)/libparts.a: $(filter-out $(B)/lib/src/hook/% $(B)/lib/src/ze/% $(B)/lib/src/sycl/usm.o $(B)/lib/src/sycl/umf.o $(B)/lib/src/sycl/ipc.o $(B)/lib/src/sycl/async.o,$(LIB_OBJ))
	rm -f $@; $(AR) rcsT $@ $^
$(B)/libtools.a: $(filter-out $(B)/tool/tools/zeroute.o $(B)/tool/src/%,$(TOOL_OBJ))
	rm -f $@; $(AR) rcsT $@ $^
SUITE_OBJ := $(patsubst test/%.c,$(B)/suite/%.o,$(filter test/unit/test_%,$(UNIT_SRC)) $(PROC_SRC))
.SECONDARY: $(SUITE_OBJ)
$(B)/suite/%.o: test/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itest $(CFLAGS) -c $< -o $@
define link_suite
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDSAN) $< -o $@ $(B)/libtools.a $(B)/libparts.a $(CHECK_LIBS) $(TOOL_LIBS) -Wl,-t,-t >$@.took
	@sed -nE 's,^$(B)/(lib|tool)/(.*)\.o$$,$@: $$(if $$(wildcard \2.c \2)\,&\,FORCE)\n&:,p' $@.took >$@.d && rm $@.took
endef
.PHONY: FORCE
$(B)/test/unit/%: $(B)/suite/unit/test_%.o | $(B)/libparts.a $(B)/libtools.a
	$(link_suite)
$(B)/test/process/suite_%: $(B)/suite/process/test_%.o | $(B)/libparts.a $(B)/libtools.a
	$(link_suite)
$(B)/test/process/%: test/process/prog_%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itest $(CFLAGS) $(PROG_SAN) $< -o $@ $(PROG_LDFLAGS_$*) -lze_loader -ldl -lpthread
$(B)/test/process/lib%.so: test/process/lib_%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itest $(CFLAGS) $(PROG_SAN) -fPIC -shared $< -o $@ $(PLIB_LDFLAGS_$*) -Wl,--as-needed -lze_loader -ldl -lpthread

# Programs that find the loader themselves must not be linked against it.
$(foreach p,bind_handle bind_noload bind_default bind_table bind_static bind_deep bind_namespace bind_local bind_again tables two_loaders handles reload tomorrow,\
  $(eval PROG_LDFLAGS_$p := -Wl,--as-needed))
PROG_LDFLAGS_dlsym = -rdynamic -Wl,--no-as-needed $(B)/test/process/libsecond.so -Wl,-rpath,'$$ORIGIN' -Wl,--as-needed
$(B)/test/process/dlsym: $(B)/test/process/libsecond.so
PLIB_LDFLAGS_freer = -Wl,-soname,libfreer.so
PLIB_LDFLAGS_tomorrow = -Wl,-soname,libze_loader.so.1
PROG_LDFLAGS_frees = -Wl,--no-as-needed $(B)/test/process/libfreer.so -Wl,-rpath,'$$ORIGIN' -Wl,--as-needed
$(B)/test/process/frees: $(B)/test/process/libfreer.so
# A SYCL runtime and an adapter by name, for what happens while another thread forks.
PLIB_LDFLAGS_runtime = -Wl,-soname,libsycl.so.9
PLIB_LDFLAGS_adapter = -Wl,-soname,libur_adapter_level_zero_v2.so.0
PROG_LDFLAGS_forking = -Wl,--no-as-needed $(B)/test/process/libsycl.so.9 -Wl,-rpath,'$$ORIGIN' -Wl,--as-needed
$(B)/test/process/forking: $(B)/test/process/libsycl.so.9
$(B)/test/process/libsycl.so.9: $(B)/test/process/libruntime.so
	ln -sf $(<F) $@
PROG_LDFLAGS_throw = -rdynamic
PROG_LDFLAGS_loading = -rdynamic
PLIB_LDFLAGS_thrower = -fexceptions -Wl,--no-as-needed -lgcc_s -Wl,--as-needed
PLIB_LDFLAGS_opener = -Wl,-z,relro,-z,now # its slots are in read-only pages
PROG_LDFLAGS_ab_work := -lm

# The guard's tests: a loader with and one without the functions of guard.def, asked by an adapter and by a stranger.
PROG_LDFLAGS_gap := -Wl,--as-needed
GAP := $(B)/test/gap/old/libze_loader.so.1 $(B)/test/gap/new/libze_loader.so.1 \
       $(B)/test/gap/libur_adapter_level_zero_v2.so.0 $(B)/test/gap/libstranger.so
$(B)/test/gap/old/libze_loader.so.1 $(B)/test/gap/new/libze_loader.so.1: test/process/gap/loader.c src/hook/guard.def
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -Isrc $(CFLAGS) $(if $(findstring /old/,$@),-DWITHOUT_ALL) -fPIC -shared -Wl,-soname,$(@F) $< -o $@
$(B)/test/gap/libur_adapter_level_zero_v2.so.0 $(B)/test/gap/libstranger.so: test/process/gap/asker.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(CFLAGS) -fPIC -shared -Wl,-soname,$(@F) $< -o $@ -ldl

# A runtime with its adapters inside: known by its name, by an export, by a string; and libraries that are none, one of
# which depends on a library that is one.
RUNTIME_NAMES := libsycl.so.9 libsycl-preview.so.9 libur_loader.so.0 libpi_unified_runtime.so libumf.so.1
RUNTIME_MARKS := __sycl_register_lib urGetGlobalProcAddrTable urGetAdapterProcAddrTable umfPoolCreate piPluginInit
RUNTIME_MARKED := $(RUNTIME_MARKS:%=$(B)/test/swallowed/lib_%.so)
SWALLOWED := $(addprefix $(B)/test/swallowed/,$(RUNTIME_NAMES) libexporting.so libholding.so libplain.so libneeding.so) \
             $(RUNTIME_MARKED)
$(B)/test/swallowed/libexporting.so: SWALLOWED_AS = -DBY_EXPORT=urAdapterGet
$(RUNTIME_MARKED): SWALLOWED_AS = -DBY_EXPORT=$(@F:lib_%.so=%)
$(B)/test/swallowed/libneeding.so: $(B)/test/swallowed/libexporting.so
$(B)/test/swallowed/libneeding.so: SWALLOWED_AS = -DIMPORTED=urAdapterGet -Wl,--no-as-needed \
    $(B)/test/swallowed/libexporting.so -Wl,-rpath,'$$ORIGIN'
$(B)/test/swallowed/libholding.so: SWALLOWED_AS = -DBY_STRING
$(SWALLOWED): test/process/swallowed.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(CFLAGS) $(SWALLOWED_AS) -fPIC -shared -Wl,-soname,$(@F) $< -o $@ -ldl
PROG_LDFLAGS_swallow := -Wl,--as-needed

# A second driver in one process: the same one under another name.
$(B)/test/process/libze_simtwo.so: $(SIM_OBJ)
	@mkdir -p $(@D)
	$(CC) $(LDSAN) $(LDFLAGS) -shared -Wl,-soname,libze_simtwo.so -Wl,-z,defs -Wl,-z,nodelete -o $@ $(SIM_OBJ) -lpthread

# The same with other tables behind its handles.
$(B)/test/process/libze_simodd.so: test/process/odd_driver.c $(SIM_OBJ)
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itools/bed/simgpu $(CFLAGS) $(LDSAN) $(LDFLAGS) -fPIC -shared -Wl,-soname,libze_simodd.so -Wl,-z,defs -Wl,-z,nodelete \
	  -Wl,--wrap=sim_object_init -o $@ $< $(SIM_OBJ) -lpthread

# Compares tools/bed/standin/xe_uapi.h with a kernel header: XE_HEADERS=DIR has drm/xe_drm.h.
standin-uapi:
	$(CC) -std=gnu11 -D_GNU_SOURCE $(WARN) -Itools/bed/standin $(if $(XE_HEADERS),-isystem $(XE_HEADERS)) \
	  -fsyntax-only test/driver/uapi_check.c
.PHONY: standin-uapi

$(B)/test/driver/%: test/driver/prog_%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itest -Itools/bed/standin $(CFLAGS) $< -o $@ -lze_loader -ldl -lpthread

#: tests      builds what the suites need, and runs none
tests: all $(B)/demo $(B)/libbed_stay.so $(B)/libxe_standin.so $(GAP) $(SWALLOWED) $(STANDIN_BIN) $(UNIT_BIN) \
  $(PROG_BIN) $(PLIB_BIN) $(PROC_BIN) $(B)/test/process/libze_simtwo.so $(B)/test/process/libze_simodd.so

-include test/turnstile/turnstile.mk # not in what packages are built from

# --- three tiers: a suite's first lines say which one it is in (test/run); T="NAMES" runs suites of any -------
# The suites of check wait for half of their time: twice as many as there are cores run side by side.
#: check      before a commit: unit and process suites, pages and screens; no network, under a minute
check: tests
	test/run -j $$((2 * $$(nproc))) --tier check
#: test       before a merge: check, and what runs on Intel's driver and the SYCL runtimes; under 12 minutes
test: tests
	test/run $(or $(T),--tier test)
#: release    packages, sanitizers, races, fuzzers, storms; LONG=1: all as often as doc/promises.md says
release: tests sanitized fuzzers $(B)/portable/libzeroute.so
	SOAK_SECONDS=$${SOAK_SECONDS:-$(if $(LONG),1800,60)} test/run $(or $(T),$(if $(LONG),,--tier release))
	$(if $(LONG),$(MAKE) -s analyze tidy coverage)

# The library, the simulated GPU and what test_clean, test_races and test_model run, once under each of two sanitizers.
.PHONY: release sanitized sanitized-parts
sanitized:
	$(MAKE) SAN=address,undefined CFLAGS='-O1 -g -fno-sanitize-recover=undefined' B=$(B)/asan \
	  PROG_SAN=-fsanitize=address,undefined sanitized-parts SANITIZED='$(UNIT_BIN:$(B)/%=$(B)/asan/%)'
	$(MAKE) SAN=thread CFLAGS='-O1 -g' B=$(B)/tsan PROG_SAN=-fsanitize=thread sanitized-parts
sanitized-parts: $(B)/libzeroute.so $(B)/libze_simgpu.so $(B)/test/process/at_once $(SANITIZED)

# --- line coverage: src/ at least 90 %, tools/ at least 80 % -----------------------------------------------
# Not test_strange and the like, which limit what a process may open and write: gcov's files are meant by that, too.
COVERED := unit/ process/suite_ process/test_outside process/test_record process/test_report record/test_python watch/test_serve \
           watch/test_top driver/test_account driver/test_check driver/test_frees driver/test_process sycl/test_clients \
           sycl/test_forms sycl/test_mirror sycl/test_routes
#: coverage   line coverage of src/ and tools/, and whether it meets the goals
coverage:
	$(MAKE) -s B=$(B)/cov CC=$(lastword $(CC)) CFLAGS='-O0 -g' COV=--coverage tests
	find $(B)/cov -name '*.gcda' -delete
	-B=$(B)/cov test/run $(COVERED)
	test/coverage --least src=90 --least tools=80 $(B)/cov

# --- fuzzing: clang's fuzzer with the sanitizers on test/fuzz/fuzz_NAME.c, FUZZ_SECONDS each, from corpus/NAME -------
FUZZ_SECONDS ?= 60
FUZZ_SAN := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
.PHONY: fuzz fuzzers
ifeq ($(FUZZING),)
fuzzers:
	$(MAKE) FUZZING=1 CC=clang CFLAGS='$(FUZZ_SAN)' B=$(B)/fuzz/parts TOP=$(B) fuzzers
else
fuzzers: $(patsubst test/fuzz/fuzz_%.c,$(TOP)/fuzz/%,$(wildcard test/fuzz/fuzz_*.c))
$(TOP)/fuzz/%: test/fuzz/fuzz_%.c test/fuzz/fuzz.h $(B)/libtools.a $(B)/libparts.a
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(subst fuzzer-no-link,fuzzer,$(CFLAGS)) $< -o $@ $(B)/libtools.a $(B)/libparts.a $(TOOL_LIBS)
endif
#: fuzz       clang's fuzzer on the allocators and on what is read from outside, FUZZ_SECONDS each
fuzz: fuzzers
	test/fuzz/run $(B)/fuzz $(FUZZ_SECONDS)

# --- benchmarks: test/bench/NAME.c for the scripts test/bench/bench_NAME ------------------------------
BENCH_BIN := $(patsubst test/bench/%.c,$(B)/bench/%,$(filter-out test/bench/clock.c test/bench/trace.c,$(wildcard test/bench/*.c)))
BENCH_LIB := $(B)/bench/librecord.so $(B)/bench/libclock.so
$(BENCH_LIB): $(B)/bench/lib%.so: test/bench/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -Itest/bench $(CFLAGS) -fPIC -shared $< -o $@ -ldl
$(B)/bench/%: test/bench/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $< -o $@ -lze_loader -lpthread
# The allocators themselves, beside others: linked in as they are in the preload.
$(B)/bench/replay: test/bench/trace.c
$(B)/bench/cache $(B)/bench/replay: $(B)/bench/%: test/bench/%.c $(patsubst %.c,$(B)/lib/%.o,$(ALLOC_SRC))
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) $(filter %.c %.o,$^) -o $@ -ldl -lpthread
#: bench      the budgets of doc/performance.md, on a machine that does nothing else
bench: all $(BENCH_BIN) $(BENCH_LIB)
	test/bench/run $(T)

# --- installation: the preload is no library to link against, so it has a folder of its own --------------
READER_SRC := $(wildcard tools/reader/*.c)
$(B)/libzeroute-reader.a: $(READER_SRC:%.c=$(B)/tool/%.o)
	rm -f $@; $(AR) rcs $@ $^
$(B)/reader/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC $(CFLAGS) -c $< -o $@
$(B)/libzeroute-reader.so.1: $(READER_SRC:%.c=$(B)/reader/%.o) tools/reader/libzeroute-reader.map
	$(CC) $(LDSAN) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=tools/reader/libzeroute-reader.map \
	  -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -o $@ $(filter %.o,$^)
# Made anew each time: PREFIX may be another one than before.
.PHONY: $(B)/zeroute-reader.pc
$(B)/zeroute-reader.pc: packaging/zeroute-reader.pc.in
	@mkdir -p $(@D)
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' $< >$@
INSTALLED := $(B)/libxe_standin.so $(B)/libbed_stay.so $(B)/libzeroute-reader.a $(B)/libzeroute-reader.so.1 $(B)/zeroute-reader.pc
STAGE = B='$(B)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' packaging/stage
.PHONY: uninstall
#: install    into PREFIX, with DESTDIR before it; uninstall takes it away again
install: all $(INSTALLED)
	$(STAGE) install
uninstall:
	$(STAGE) uninstall

# --- packages ---------------------------------------------------------------------------------------------
NAME := zeroute-$(VERSION)
# The same commit gives the same bytes: time and owner are not those of the build.
TAR := tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(shell git log -1 --format=%ct 2>/dev/null || echo 0)
.PHONY: wheel dist dist-bin deb portable
portable:
	packaging/portable $(B)/portable
#: wheel      the wheel for other machines; dist-bin: an archive; deb: Debian packages; dist: the sources
wheel: portable
	packaging/wheel $(B)/portable $(VERSION) $(B)/dist
dist:
	@mkdir -p $(B)/dist
	git archive --format=tar --prefix=$(NAME)/ HEAD | gzip -9n >$(B)/dist/$(NAME).tar.gz
	@echo $(B)/dist/$(NAME).tar.gz
dist-bin: portable $(B)/libzeroute-reader.a $(B)/zeroute-reader.pc
	rm -rf $(B)/dist/$(NAME)-x86_64
	cp $(B)/libzeroute-reader.a $(B)/zeroute-reader.pc $(B)/portable/
	B='$(B)/portable' STRIP=no PREFIX=/$(NAME)-x86_64 DESTDIR='$(B)/dist' packaging/stage install
	sed -i 's|^prefix=.*|prefix=$${pcfiledir}/../..|' $(B)/dist/$(NAME)-x86_64/lib/pkgconfig/zeroute-reader.pc
	cp README.md LICENSE CHANGELOG.md $(B)/dist/$(NAME)-x86_64/
	$(TAR) -C $(B)/dist -cf - $(NAME)-x86_64 | gzip -9n >$(B)/dist/$(NAME)-x86_64.tar.gz
	@rm -rf $(B)/dist/$(NAME)-x86_64
	@echo $(B)/dist/$(NAME)-x86_64.tar.gz
deb:
	packaging/deb $(B)/dist

# --- static analysis beside cppcheck: gcc's analyzer and clang-tidy (.clang-tidy), some minutes --------------
ANALYZED := $(LIB_SRC) $(TOOL_SRC) $(SIM_SRC)
ANALYSIS := $(filter-out $(WARN) -MMD -MP -ffile-prefix-map=%,$(BASE))
# Again after any change of a header: what is wrong in a file may be in what it includes.
HEADERS := $(shell find src include tools -name '*.h' -o -name '*.def')
#: analyze    gcc's analyzer; tidy: clang-tidy; some minutes
analyze: $(ANALYZED:%=$(B)/analyze/%)
$(B)/analyze/%.c: %.c $(HEADERS)
	@mkdir -p $(@D)
	$(lastword $(CC)) $(ANALYSIS) -O2 -fanalyzer -Werror -c $< -o /dev/null && touch $@
tidy: $(ANALYZED:%=$(B)/tidy/%)
$(B)/tidy/%.c: %.c .clang-tidy $(HEADERS)
	@mkdir -p $(@D)
	clang-tidy --quiet $< -- $(ANALYSIS) 2>/dev/null && touch $@

# cppcheck complains of alloca, which tools/bed/stay needs: between vfork and exec there is only the stack.
# Versions from 2.11 on say in every file that they look at less than they could, unless told to look at all.
#: lint       layers, line length, plain code, clang-format, cppcheck
lint: all
	test/lint/columns
	test/lint/plain
	test/lint/layers $(B)
	test/turnstile/faults/run --apply
	clang-format --dry-run -Werror $(filter %.c %.h %.cpp,$(shell git ls-files src include tools test examples 2>/dev/null))
	cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability \
	  $(shell cppcheck --help 2>/dev/null | grep -q check-level && echo --check-level=exhaustive) \
	  -D__x86_64__ -D_GNU_SOURCE -DZEROUTE_VERSION='"$(VERSION)"' -Iinclude -Isrc -Itools -i tools/bed/stay src tools include

# The beds stay: they are brought from afar.
#: clean      removes what was built, but not the beds
clean:
	@case $(abspath $(B))/ in $(CURDIR)/?*) ;; *) echo "clean: $(B) is not inside this folder" >&2; exit 1 ;; esac
	[ ! -d $(B) ] || find $(B) -mindepth 1 -maxdepth 1 ! -name beds -exec rm -rf {} +

help:
	@sed -n 's/^# //p' Makefile | head -2
	@sed -n 's/^#: /  /p' Makefile

# What was built from a source that has moved since is built again.
%.c: ;
-include $(shell find $(B) -path $(B)/beds -prune -o -name '*.d' -type f -print 2>/dev/null)
