<?php
function work(int $n): int {
    $s = 0;
    for ($i = 0; $i < $n; $i++) {
        $s = ($s * 31 + $i) % 1000003;
    }
    return $s;
}
for ($w = 0; $w < 2; $w++) {
    $pid = pcntl_fork();
    if ($pid == 0) {
        if ($w == 1) usleep(500000);
        $s = 0;
        for ($k = 0; $k < 100; $k++) $s += work(120000);
        echo "$w $s\n";
        exit(0);
    }
}
for ($w = 0; $w < 2; $w++) pcntl_wait($st);
