//! Prints the hottest functions of a running process every second, while its runtime compiles more of them:
//!
//!     node --perf-prof app.js & cargo run --example live_symbolizer -- $!

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jitdump::symbolize::Process;
use jitdump::{Address, Time, printable};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: live_symbolizer PID")?;
    let mut process = Process::new(pid.parse()?);
    // perf takes samples on the clock of jitdumps, and prints them as they come: seconds.nanoseconds: address
    let record = format!("perf record -q --no-buffering -k mono -F 499 -o - -p {pid}");
    let command = format!("{record} | stdbuf -oL perf script -i - --ns -F time,ip");
    let mut perf = Command::new("sh");
    let mut perf = perf.args(["-c", &command]).stdout(Stdio::piped()).spawn()?;
    let (mut samples, mut last) = (Vec::new(), Instant::now());
    for line in BufReader::new(perf.stdout.take().ok_or("no output")?).lines() {
        if let Some((time, address)) = line?.trim().split_once(':') {
            let time = Time(time.replace('.', "").parse()?);
            samples.push((time, Address(u64::from_str_radix(address.trim(), 16)?)));
        }
        if last.elapsed() < Duration::from_secs(1) {
            continue;
        }
        last = Instant::now();
        let new = process.update()?;
        let (took, taken) = (last.elapsed(), samples.len());
        let mut names = BTreeMap::<Vec<u8>, usize>::new();
        for (time, address) in samples.drain(..) {
            let found = process.function_at(address, time);
            if let Some(symbol) = found.and_then(|(dump, function)| dump.symbol(function)) {
                *names.entry(symbol.name).or_default() += 1;
            }
        }
        let read: u64 = process.dumps().iter().map(|dump| dump.position()).sum();
        let named: usize = names.values().sum();
        let mut out = stdout().lock();
        let share = format!("{named} of {taken} samples in JIT code");
        writeln!(out, "{new} new functions in {took:?}, {read} bytes read, {share}")?;
        let mut hottest: Vec<_> = names.into_iter().collect();
        hottest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (name, count) in hottest.iter().take(3) {
            writeln!(out, "{count:>7}  {}", printable(name))?;
        }
    }
    perf.wait()?;
    Ok(())
}
