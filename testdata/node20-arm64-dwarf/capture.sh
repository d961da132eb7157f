#!/bin/sh
# Debian 13 on AArch64 with pointer authentication: kernel 6.12.117, perf 6.12.117, node 20.19.2.
# frame-records.tsv has the callers of each sample by its frame records, found without unwinding tables.
# symfs.tar.zst has the headers, build IDs and unwinding tables of the mapped files.
set -e
perf record -k mono -e cpu-clock -F 19 --call-graph dwarf,8192 -o perf.data node --perf-prof --perf-basic-prof-only-functions --perf-prof-unwinding-info share.js 8
zstd -19 --rm perf.data
