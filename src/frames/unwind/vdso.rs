//! The code that the kernel maps into each process (`[vdso]`), which no file contains.

use std::os::unix::fs::FileExt;

use crate::files::kernel;

/// Returns the ELF file that the running kernel maps into processes.
pub fn read() -> Option<Vec<u8>> {
    /// It has a few pages.
    const MAX: u64 = 1 << 20;
    let maps = kernel::read_text("/proc/self/maps").ok()?;
    let (start, end) = range(&maps)?;
    let size = end.checked_sub(start).filter(|&size| size <= MAX)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    let memory = kernel::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// Returns where it starts and ends, from the text of `/proc/PID/maps`.
fn range(maps: &str) -> Option<(u64, u64)> {
    // The name of a file starts with a slash, and may end in anything.
    let is_vdso = |line: &&str| line.split_whitespace().nth(5) == Some("[vdso]");
    let (start, end) = maps
        .lines()
        .find(is_vdso)?
        .split_whitespace()
        .next()?
        .split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_of_this_process_is_an_elf_file() {
        assert!(read().unwrap().starts_with(b"\x7fELF"));
    }

    #[test]
    fn a_file_whose_name_ends_like_the_vdso_is_not_taken_for_it() {
        let file = "00400000-00401000 r-xp 00000000 fe:00 131 /tmp/perf [vdso]\n";
        let vdso = "7ffe0f5c2000-7ffe0f5c4000 r-xp 00000000 00:00 0 [vdso]\n";
        assert_eq!(range(file), None);
        assert_eq!(
            range(&[file, vdso].concat()),
            Some((0x7ffe_0f5c_2000, 0x7ffe_0f5c_4000))
        );
    }
}
