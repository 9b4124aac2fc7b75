#!/bin/bash
# What `make lint` looks for is not there: lines that are too long, and whatever cppcheck finds, without a suppression.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=test/promise.sh
. test/promise.sh

lint() {
    command -v cppcheck >/dev/null || {
        echo "no cppcheck here"
        return 77
    }
    make -s lint
}
promise "no line is longer than 120 columns" test/lint/columns
promise "cppcheck finds nothing in the library and the tools" lint
kept
