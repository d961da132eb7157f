#!/bin/sh
# Debian php8.2-cli + php8.2-opcache. Both children run what the first one compiles.
set -e
cd /tmp/cap-php82-workers
perf record -k mono -F 499 -g -o perf.data php8.2 -d opcache.enable_cli=1 -d opcache.file_update_protection=0 -d opcache.jit_buffer_size=64M -d opcache.jit=tracing -d opcache.jit_debug=32 workers.php
cp -p /tmp/jit-*.dump .
