# The turnstile: programs under the preload, one thread at a time at the driver's door (test/turnstile/README.md).
TURN := $(B)/turnstile
TURN_FLAGS = $(filter-out -MMD -MP,$(BASE)) -O2 -g
TURN_BELOW := $(addprefix test/turnstile/,scheduler.c driver.c device.c)
TURN_ABOVE := $(addprefix test/turnstile/,main.c run.c operations.c submits.c sycl.c truth.c rest.c record.c script.c segment.c settings.c)

$(TURN)/libze_loader.so.1: $(TURN_BELOW) test/turnstile/turnstile.h
	@mkdir -p $(@D)
	$(CC) $(TURN_FLAGS) -fPIC -shared -Wl,-soname,$(@F) -o $@ $(TURN_BELOW) -ldl -lpthread
$(TURN)/turnstile: $(TURN_ABOVE) test/turnstile/turnstile.h test/turnstile/runtime/runtime.h test/turnstile/program.h include/zeroute/segment.h include/zeroute/record.h \
  $(TURN)/libze_loader.so.1
	$(CC) $(TURN_FLAGS) -o $@ $(TURN_ABOVE) $(TURN)/libze_loader.so.1 -ldl -Wl,-rpath,'$$ORIGIN'

# The same preload, in which each atomic operation is a point: instrumented for the thread sanitizer, without its library.
$(TURN)/atomics/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(LIB_CFLAGS) -O1 -g -fsanitize=thread -Wno-tsan -c $< -o $@
$(TURN)/atomics.o: test/turnstile/atomics.c
	@mkdir -p $(@D)
	$(CC) $(TURN_FLAGS) -Wno-unused-parameter -fPIC -c $< -o $@
$(TURN)/libzeroute.so: $(LIB_SRC:%.c=$(TURN)/atomics/%.o) $(TURN)/atomics.o src/libzeroute.map
	$(CC) -o $@ $(filter %.o,$^) $(LIB_LDFLAGS) $(LIBDL)

# With a fault in one source (test/turnstile/faults/run).
ifdef FAULT
FAULT_OBJ := $(TURN)/faults/$(FAULT)/$(FAULT_KIND).o
FAULT_DIR := $(if $(filter atomics,$(FAULT_KIND)),$(TURN)/atomics,$(B)/lib)
FAULT_FLAGS := $(if $(filter atomics,$(FAULT_KIND)),-O1 -g -fsanitize=thread,$(CFLAGS))
$(FAULT_OBJ): $(TURN)/faults/$(FAULT)/$(notdir $(FAULT_SOURCE))
	$(CC) $(filter-out -MMD -MP,$(BASE)) $(LIB_CFLAGS) -w $(FAULT_FLAGS) -c $< -o $@
$(TURN)/faults/$(FAULT).so: $(FAULT_OBJ) $(filter-out $(FAULT_DIR)/$(FAULT_SOURCE:.c=.o),$(LIB_SRC:%.c=$(FAULT_DIR)/%.o)) \
  $(if $(filter atomics,$(FAULT_KIND)),$(TURN)/atomics.o)
	$(CC) -o $@ $^ $(LIB_LDFLAGS) $(LIBDL)
endif

.PHONY: turnstile turnstile-atomics
#: turnstile  the interleaving explorer: test/turnstile/run
turnstile: $(B)/libzeroute.so $(TURN)/turnstile
turnstile-atomics: turnstile $(TURN)/libzeroute.so
tests: turnstile-atomics

# A SYCL runtime of our own, and the part of the program that is linked to it.
TURN_SYCL := $(TURN)/sycl
$(TURN_SYCL)/libumf.so.1: test/turnstile/runtime/umf.c test/turnstile/runtime/umf.h test/turnstile/runtime/umf.map
	@mkdir -p $(@D)
	$(CC) $(TURN_FLAGS) -fPIC -shared -Wl,-soname,$(@F) -Wl,--version-script=$(lastword $^) -o $@ $<
$(TURN_SYCL)/libsycl.so.9: test/turnstile/runtime/runtime.c test/turnstile/runtime/runtime.h $(TURN_SYCL)/libumf.so.1 \
  $(TURN)/libze_loader.so.1 src/sycl/usm.def
	$(CC) $(TURN_FLAGS) -fPIC -shared -Wl,-soname,$(@F) -o $@ $< $(filter %.so.1,$^) -Wl,-rpath,'$$ORIGIN:$$ORIGIN/..'
$(TURN_SYCL)/libusm.so: test/turnstile/runtime/usm.c test/turnstile/runtime/runtime.h $(TURN_SYCL)/libsycl.so.9
	$(CC) $(TURN_FLAGS) -fPIC -shared -o $@ $< $(TURN_SYCL)/libsycl.so.9 -Wl,-rpath,'$$ORIGIN'
turnstile: $(TURN_SYCL)/libusm.so
