//! The code that the kernel maps into each process (`[vdso]`), which no file contains.

use std::os::unix::fs::FileExt;

use crate::files::kernel;

/// Returns the ELF file that the running kernel maps into processes.
pub fn read() -> Option<Vec<u8>> {
    /// It has a few pages.
    const MAX: u64 = 1 << 20;
    let maps = kernel::read_text("/proc/self/maps").ok()?;
    let map = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = map.split_whitespace().next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let size = u64::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let mut bytes = vec![0; usize::try_from(size.min(MAX)).ok()?];
    let memory = kernel::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_of_this_process_is_an_elf_file() {
        assert!(read().unwrap().starts_with(b"\x7fELF"));
    }
}
