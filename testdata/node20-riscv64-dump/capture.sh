#!/bin/sh
# nodejs 20.19.2 of Debian 13 for riscv64, and what it depends on, unpacked in ROOT, with dev/null, dev/urandom and proc.
# qemu-riscv64-static is that of Debian 12. perf.data knows only its process, in which the addresses of the dump
# mean nothing. The dump is shortened to its first 72 kB.
ROOT=/tmp/debian-riscv64
mkdir -p $ROOT/tmp/cap-node20-riscv64-dump
cp work.js $ROOT/tmp/cap-node20-riscv64-dump
cp /usr/bin/qemu-riscv64-static $ROOT
perf record -k mono -F 49 -e cpu-clock -g -o perf.data -- python3 -c "
import os
os.chroot('$ROOT')
os.chdir('/tmp/cap-node20-riscv64-dump')
os.execv('/qemu-riscv64-static', '/qemu-riscv64-static /usr/bin/node --perf-prof --perf-basic-prof-only-functions --single-threaded work.js 700'.split())"
cp $ROOT/tmp/cap-node20-riscv64-dump/jit-*.dump .
