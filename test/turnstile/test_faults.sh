#!/usr/bin/env bash
# Every fault that is put back into the preload is found (test/turnstile/faults/run).
# Tier: release.
exec "$(dirname "$0")/faults/run"
