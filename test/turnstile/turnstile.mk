# The turnstile: programs under the preload, one thread at a time at the driver's door (test/turnstile/README.md).
TURN := $(B)/turnstile
TURN_FLAGS = $(filter-out -MMD -MP,$(BASE)) -O2 -g
TURN_BELOW := test/turnstile/scheduler.c test/turnstile/driver.c
TURN_ABOVE := $(addprefix test/turnstile/,main.c run.c operations.c truth.c rest.c script.c segment.c settings.c)

$(TURN)/libze_loader.so.1: $(TURN_BELOW) test/turnstile/turnstile.h
	@mkdir -p $(@D)
	$(CC) $(TURN_FLAGS) -fPIC -shared -Wl,-soname,$(@F) -o $@ $(TURN_BELOW) -ldl -lpthread
$(TURN)/turnstile: $(TURN_ABOVE) test/turnstile/turnstile.h test/turnstile/program.h include/zeroute/segment.h \
  $(TURN)/libze_loader.so.1
	$(CC) $(TURN_FLAGS) -o $@ $(TURN_ABOVE) $(TURN)/libze_loader.so.1 -Wl,-rpath,'$$ORIGIN'

.PHONY: turnstile
#: turnstile  the interleaving explorer: test/turnstile/run
turnstile: $(B)/libzeroute.so $(TURN)/turnstile
tests: turnstile
