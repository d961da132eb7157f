//! Names of the kernel's code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jitdump::ByteOrder;
use serde_json::Value;

use crate::report::{rows, samples};
use crate::support::profile::ProfileWriter;
use crate::support::recording::PID;
use crate::support::{jitinject, said, scratch, tools};

/// The marker before the kernel's addresses in a call chain.
const IN_KERNEL: u64 = -128_i64 as u64;

/// Returns a profile with a process.
fn started() -> ProfileWriter {
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.comm(PID, "program", true, 500);
    profile
}

/// Returns the samples in each function, and those below it, for a user with this home directory.
fn functions(home: &Path, profile: &ProfileWriter) -> BTreeMap<String, (u64, u64)> {
    let path = home.join("perf.data");
    fs::write(&path, profile.finish()).unwrap();
    let mut command = jitinject();
    command.env("HOME", home).env_remove("PERF_BUILDID_DIR");
    let output = command
        .args(["report", "--json", "-n", "0", tools::text(&path)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows(&report).iter().map(|row| {
        let name = row["name"].as_str().unwrap().to_owned();
        (name, (samples(row, "self"), samples(row, "total")))
    });
    rows.collect()
}

/// The kernel reports eBPF programs when they are loaded and removed. Another one may get the same memory.
#[test]
fn programs_in_the_kernel_have_names_while_they_are_loaded() {
    const PROGRAM: u64 = 0xffff_ffff_c002_5ba8;
    let mut profile = started();
    profile.kernel_code(PROGRAM, 0x400, false, "bpf_prog_older", 1000);
    profile.kernel_code(PROGRAM, 0x400, true, "bpf_prog_older", 3000);
    profile.kernel_code(PROGRAM - 0x100, 0x300, false, "bpf_prog_newer", 5000);
    // The records of each CPU are in order, not those of the file.
    profile.kernel_code(PROGRAM + 0x1000, 0x100, false, "bpf_prog_present", 0);
    for time in [500, 2000, 2001, 4000, 6000, 6001, 6002] {
        let caller = PROGRAM + 0x20;
        profile.kernel_sample(PID, time, &[IN_KERNEL, 0xffff_ffff_8100_0000, caller]);
    }
    for address in [PROGRAM + 0x1000, PROGRAM + 0x10ff, PROGRAM + 0x1100] {
        profile.kernel_sample(PID, 7000, &[IN_KERNEL, address]);
    }
    let found = functions(scratch().path(), &profile);
    let of = |name: &str| found.get(name).copied();
    assert_eq!(of("bpf_prog_older"), Some((0, 2)), "{found:?}");
    assert_eq!(of("bpf_prog_newer"), Some((0, 3)), "{found:?}");
    assert_eq!(of("bpf_prog_present"), Some((2, 2)), "{found:?}");
}

/// perf's copy may be older than modules and programs that are loaded now. Without the right to read the kernel's
/// addresses, it is all there is.
#[test]
fn the_running_kernel_comes_before_a_copy_of_its_symbols() {
    let home = scratch();
    let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
    let start = b"\x14\0\0\0\x03\0\0\0GNU\0";
    let found = memchr::memmem::find(&notes, start).map(|at| at + start.len());
    let found = found.and_then(|at| notes.get(at..)?.first_chunk());
    let build_id: [u8; 20] = found.copied().unwrap_or([0xab; 20]);
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let text = kallsyms.lines().find_map(|line| line.strip_suffix(" T _text"));
    let text = text.map_or(0, |text| u64::from_str_radix(text, 16).unwrap());
    let is_visible = text != 0 && found.is_some();
    let text = if is_visible { text } else { 0xffff_ffff_8100_0000 };
    let build_id_in_hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let copy = home.path().join(".debug/[kernel.kallsyms]").join(build_id_in_hex);
    fs::create_dir_all(&copy).unwrap();
    let stale = format!("{text:x} T _text\n{:x} t stale\n", text + 1);
    fs::write(copy.join("kallsyms"), stale).unwrap();
    let mut profile = started();
    profile.kernel_map(text, 0x100_0000, &build_id);
    profile.kernel_sample(PID, 1000, &[IN_KERNEL, text + 0x1000]);
    let found = functions(home.path(), &profile);
    assert_eq!(found.contains_key("stale"), !is_visible, "{found:?}");
}
