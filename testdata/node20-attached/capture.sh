#!/bin/sh
# Attached to a running process by perf's own clock, 3 ms behind CLOCK_MONOTONIC; code addresses are used again while recording. offset.txt: the
# distance of the clocks, from files mapped at known times under a second perf record (to 0.03 ms); truth.tsv is without the samples that
# this leaves open. The DEBUG_INFO records of the dump are left out.
node --expose-gc --perf-prof --perf-basic-prof-only-functions --no-concurrent-recompilation --stress-flush-code --flush-bytecode work.js 1150 &
sleep 0.5
perf record -F 1999 -g -o perf.data -p $!
