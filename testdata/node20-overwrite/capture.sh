#!/bin/sh
# Debian 12 package: nodejs 20. Run in /tmp/cap-node20-overwrite. perf.data is the last file that this makes: the maps of the
# process are only in those before it.
cd /tmp/cap-node20-overwrite
perf record --overwrite --switch-output=1s -k mono -e cpu-clock -F 499 -g -o perf.data \
    node --perf-prof --perf-basic-prof-only-functions work.js 3000
