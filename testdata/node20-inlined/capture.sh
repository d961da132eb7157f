#!/bin/sh
# nodejs 20.20.2
set -e
cd /tmp/inlined
perf record -k mono -e cpu-clock -F 199 -o perf.data node --perf-prof --perf-basic-prof-only-functions a.js
