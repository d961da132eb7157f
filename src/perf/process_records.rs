//! Views of the records about processes, threads and their mappings.

use jitdump::{Address, AddressRange, ByteOrder, Time};

use crate::bytes::{Reader, until_nul};
use crate::perf::record::{self, Record};
use crate::units::{Pid, Tid};

/// An [`record::MMAP`] or [`record::MMAP2`] record of a user process.
#[derive(Clone, Copy, Debug)]
pub struct Mmap<'a> {
    /// Process ID.
    pub pid: Pid,
    /// Thread ID.
    pub tid: u32,
    /// Mapped addresses.
    pub range: AddressRange,
    /// Offset of the mapping in the file, in bytes (`pgoff`).
    pub file_offset: u64,
    /// Device and inode of the file; `None` if the record has none.
    pub file: Option<FileId>,
    /// Build ID of the file, if the record has one instead of device and inode.
    pub build_id: Option<&'a [u8]>,
    /// Whether the memory is known to hold no code: it may be read or written, but not executed.
    pub is_data: bool,
    /// Whether processes that are forked share the memory (`MAP_SHARED`), rather than get a copy of it.
    pub is_shared: bool,
    /// Path of the file, or a placeholder: `//anon`, `[heap]`, `/memfd:name (deleted)`.
    pub name: &'a [u8],
}

/// An [`record::MMAP`] or [`record::MMAP2`] record of the kernel or one of its modules.
#[derive(Clone, Copy, Debug)]
pub struct KernelMap<'a> {
    /// Addresses of the code.
    pub range: AddressRange,
    /// Address of the symbol in the name, for the kernel itself: `_text` in `[kernel.kallsyms]_text`.
    pub reference: Address,
    /// Name without that symbol: `[kernel.kallsyms]`, `[ext4]` or the path of the module's file.
    pub name: &'a [u8],
    /// Build ID, if the record has one.
    pub build_id: Option<&'a [u8]>,
}

impl<'a> KernelMap<'a> {
    /// Reads a mapping. `None` for all others, as in [`Mmap::parse`].
    pub fn parse(record: &Record<'a>, endian: ByteOrder) -> Option<Self> {
        if record.cpu_mode() != record::MISC_KERNEL {
            return None;
        }
        let map = Mmap::read(record, endian)?;
        // A path of a module's file may have brackets, too.
        let image = map.name.strip_prefix(b"[");
        let end = image.and_then(|image| memchr::memchr(b']', image));
        let name = end
            .and_then(|end| map.name.get(..end.saturating_add(2)))
            .unwrap_or(map.name);
        Some(Self {
            range: map.range,
            reference: Address(map.file_offset),
            name,
            build_id: map.build_id,
        })
    }
}

/// A [`record::KSYMBOL`] record.
#[derive(Clone, Copy, Debug)]
pub struct KernelCode<'a> {
    /// Addresses of the code.
    pub range: AddressRange,
    /// Whether the code was removed.
    pub is_removed: bool,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> KernelCode<'a> {
    /// Reads a record. `None` for other record types and for guests, and without addresses or a name.
    pub fn parse(record: &Record<'a>, endian: ByteOrder) -> Option<Self> {
        /// `PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER`.
        const REMOVED: u16 = 1;
        if record.kind != record::KSYMBOL || record.is_guest() {
            return None;
        }
        let mut body = record.body(endian);
        let start = Address(body.u64()?);
        let size = body.u32()?;
        let _type = body.u16()?;
        let flags = body.u16()?;
        let name = until_nul(body.rest());
        (!name.is_empty()).then_some(Self {
            range: AddressRange::new(start, size.into())?,
            is_removed: flags & REMOVED != 0,
            name,
        })
    }
}

/// The device and inode of a mapped file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode.
    pub inode: u64,
}

impl<'a> Mmap<'a> {
    /// Reads a mapping. `None` for other record types, for mappings of the kernel and of guests, and for
    /// truncated records and empty mappings.
    pub fn parse(record: &Record<'a>, endian: ByteOrder) -> Option<Self> {
        // Quirk (perf 7.3): `perf inject --mmap2-buildids` marks most mappings as those of a guest (node20-buildids-perf7).
        const MARKED: u16 = record::MISC_GUEST_USER | record::MISC_MMAP_BUILD_ID;
        let is_marked = record.kind == record::MMAP2 && record.misc & MARKED == MARKED;
        if is_user(record) || is_marked {
            Self::read(record, endian)
        } else {
            None
        }
    }

    /// Reads a mapping of a process or of the kernel; `None` for other records, and if it is cut or has no addresses.
    fn read(record: &Record<'a>, endian: ByteOrder) -> Option<Self> {
        /// Right to execute the memory (`mmap(2)`).
        const PROT_EXEC: u32 = 4;
        /// Whether a mapping is shared (`mmap(2)`); private ones have 2.
        const MAP_SHARED: u32 = 1;
        let mut body = record.body(endian);
        let pid = Pid(body.u32()?);
        let tid = body.u32()?;
        let start = Address(body.u64()?);
        let size = body.u64()?;
        let file_offset = body.u64()?;
        let (file, build_id, is_data, is_shared) = match record.kind {
            record::MMAP => (None, None, record.misc & record::MISC_MMAP_DATA != 0, false),
            record::MMAP2 => {
                let identity = body.bytes(24)?;
                let protection = body.u32()?;
                let flags = body.u32()?;
                let (file, build_id) = match record.misc & record::MISC_MMAP_BUILD_ID {
                    0 => (FileId::read(&mut Reader::new(identity, endian)), None),
                    _ => (None, build_id(identity)),
                };
                // Memory without any rights is reserved, and gets its rights later: V8's code is reported like this first.
                let is_data = protection != 0 && protection & PROT_EXEC == 0;
                (file, build_id, is_data, flags & MAP_SHARED != 0)
            }
            _ => return None,
        };
        Some(Self {
            pid,
            tid,
            range: AddressRange::new(start, size)?,
            file_offset,
            file,
            build_id,
            is_data,
            is_shared,
            name: until_nul(body.rest()),
        })
    }

    /// Whether the memory is the stack or the heap of its process.
    pub fn is_stack_or_heap(&self) -> bool {
        self.name == b"[heap]" || self.name.starts_with(b"[stack")
    }

    /// Classifies the mapped memory by the name of the mapping: the first of anonymous memory, a library, memory that is
    /// shared or temporary, a file.
    pub fn backing(&self) -> Backing {
        // Names that the kernel gives to memory without a file (mm/mmap.c, perf_event_mmap_event in
        // kernel/events/core.c), and perf's lists of them (is_anon_memory and is_no_dso_memory in
        // tools/perf/util/map.c).
        const ANONYMOUS: [&[u8]; 4] = [b"//anon", b"[anon:", b"/dev/zero", b"/anon_hugepage"];
        const SHARED_OR_DATA: [&[u8]; 5] = [b"/memfd:", b"/SYSV", b"/dev/shm/", b"[heap]", b"[stack"];
        // Where runtimes create a file for sharing memory, which they delete at once.
        const TEMPORARY: [&[u8]; 3] = [b"/tmp/", b"/var/tmp/", b"/run/"];
        // `perf inject --mmap2-buildids` writes this name for anonymous memory.
        let is_perfs_name = self.name.starts_with(b"/tmp/perf-") && self.name.ends_with(b".map");
        let starts_with = |prefixes: &[&[u8]]| prefixes.iter().any(|prefix| self.name.starts_with(prefix));
        let deleted = self.name.strip_suffix(b" (deleted)");
        let is_temporary = deleted.is_some() && starts_with(&TEMPORARY);
        if starts_with(&ANONYMOUS) || is_perfs_name {
            Backing::Anonymous
        } else if deleted.unwrap_or(self.name).ends_with(b".so") {
            // Also below /dev/shm, as the objects of an output there, and libraries that programs of Java unpack into /tmp, and
            // delete when they are loaded (Netty).
            Backing::File
        } else if starts_with(&SHARED_OR_DATA) || is_temporary {
            Backing::Shared
        } else {
            Backing::File
        }
    }
}

/// The build ID in the identity of a file: its size, three bytes of padding, the ID.
fn build_id(identity: &[u8]) -> Option<&[u8]> {
    let (&size, rest) = identity.split_first()?;
    rest.get(3..)?.get(..size.into())
}

impl FileId {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            major: reader.u32()?,
            minor: reader.u32()?,
            inode: reader.u64()?,
        })
    }
}

/// Kind of mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Memory without a file. JIT compilers write code there, and perf looks up its symbols in
    /// `/tmp/perf-PID.map`.
    Anonymous,
    /// Memory without a file of code: shared, in a deleted temporary file, the heap or a stack. JIT compilers write code there,
    /// too.
    Shared,
    /// A file.
    File,
}

impl Backing {
    /// Whether it is a file, with code of its own.
    pub fn is_file(self) -> bool {
        match self {
            Self::File => true,
            Self::Anonymous | Self::Shared => false,
        }
    }

    /// Whether JIT compilers write code there.
    pub fn is_jit_memory(self) -> bool {
        match self {
            Self::Anonymous | Self::Shared => true,
            Self::File => false,
        }
    }
}

/// A [`record::FORK`] record that starts a process, not a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    /// The new process.
    pub child: Pid,
    /// The process that started it.
    pub parent: Pid,
    /// Whether the child existed before the recording, so that it may have executed another program in the
    /// meantime. perf makes such records (`perf_event__synthesize_fork`, tools/perf/util/synthetic-events.c).
    pub is_synthesized: bool,
}

impl Fork {
    /// Reads a fork. `None` for other record types and for a new thread of the same process.
    pub fn parse(record: &Record<'_>, endian: ByteOrder) -> Option<Self> {
        if record.kind != record::FORK {
            return None;
        }
        let mut body = record.body(endian);
        let child = Pid(body.u32()?);
        let parent = Pid(body.u32()?);
        (child != parent).then_some(Self {
            child,
            parent,
            is_synthesized: record.misc & record::MISC_FORK_EXEC != 0,
        })
    }
}

/// Maximum size of a thread's name in bytes. Kernels have at most 15 bytes; readers accept any size.
pub const MAX_THREAD_NAME: usize = 255;

/// A [`record::FORK`], [`record::COMM`] or [`record::EXIT`] record.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRecord<'a> {
    /// Process of the thread.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// What happens to it.
    pub change: ThreadChange<'a>,
}

/// A change in the life of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadChange<'a> {
    /// The thread started.
    Start,
    /// The thread got this name, of at most 15 bytes (`TASK_COMM_LEN`).
    Name(&'a [u8]),
    /// The thread ended.
    End,
}

/// Reads a record about the life of a thread; `None` for other types, and for truncated records.
pub fn thread_record<'a>(record: &Record<'a>, endian: ByteOrder) -> Option<ThreadRecord<'a>> {
    let mut body = record.body(endian);
    let pid = Pid(body.u32()?);
    let second = body.u32()?;
    // The second field is the TID, or the PID of the thread that started this one or waits for its end.
    let (tid, change) = match record.kind {
        record::COMM => (second, ThreadChange::Name(until_nul(body.rest()))),
        record::FORK => (body.u32()?, ThreadChange::Start),
        record::EXIT => (body.u32()?, ThreadChange::End),
        _ => return None,
    };
    Some(ThreadRecord {
        pid,
        tid: Tid(tid),
        change,
    })
}

/// Returns the thread that a [`record::FORK`] record starts, and the one that starts it, each with its process. `None` for
/// other types.
pub fn started_thread(record: &Record<'_>, endian: ByteOrder) -> Option<[(Pid, Tid); 2]> {
    if record.kind != record::FORK {
        return None;
    }
    let mut body = record.body(endian);
    let (pid, parent) = (Pid(body.u32()?), Pid(body.u32()?));
    let (tid, starter) = (Tid(body.u32()?), Tid(body.u32()?));
    Some([(pid, tid), (parent, starter)])
}

/// Returns the time in the body of a [`record::FORK`] record, which is there with or without a trailer.
pub fn fork_time(record: &Record<'_>, endian: ByteOrder) -> Option<Time> {
    if record.kind != record::FORK {
        return None;
    }
    let mut body = record.body(endian);
    body.skip(16)?;
    body.u64().map(Time)
}

/// Returns the process of a [`record::COMM`] record; `None` for other types.
pub fn comm_pid(record: &Record<'_>, endian: ByteOrder) -> Option<Pid> {
    (record.kind == record::COMM).then(|| record.body(endian).u32().map(Pid))?
}

/// Returns the process of a [`record::COMM`] record that marks the execution of another program.
pub fn exec_pid(record: &Record<'_>, endian: ByteOrder) -> Option<Pid> {
    comm_pid(record, endian).filter(|_| record.misc & record::MISC_COMM_EXEC != 0)
}

/// Returns the process that ends with a [`record::EXIT`] record: a process ends with its first thread, which
/// has the PID as its TID.
pub fn exited_pid(record: &Record<'_>, endian: ByteOrder) -> Option<Pid> {
    let ThreadRecord { pid, tid, change } = thread_record(record, endian)?;
    (change == ThreadChange::End && pid.0 == tid.0).then_some(pid)
}

/// Returns the process of a [`record::NAMESPACES`] record and the inode of its mount namespace; `None` for other records, and
/// without one.
pub fn mount_namespace(record: &Record<'_>, endian: ByteOrder) -> Option<(Pid, u64)> {
    /// `MNT_NS_INDEX` of include/uapi/linux/perf_event.h.
    const MOUNT: u64 = 5;
    /// Size of an entry in bytes: device and inode.
    const ENTRY: u64 = 16;
    if record.kind != record::NAMESPACES {
        return None;
    }
    let mut body = record.body(endian);
    let pid = Pid(body.u32()?);
    let _tid = body.u32()?;
    if body.u64()? <= MOUNT {
        return None;
    }
    body.skip(MOUNT * ENTRY)?;
    let _device = body.u64()?;
    Some((pid, body.u64()?))
}

/// Whether the record is about a process of this machine, not about the kernel or a guest.
fn is_user(record: &Record<'_>) -> bool {
    matches!(record.cpu_mode(), 0 | record::MISC_USER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Records;

    fn parse_one<T>(bytes: &[u8], view: impl Fn(&Record<'_>) -> T) -> T {
        let record = Records::new(bytes, 0, ByteOrder::Little).next().unwrap();
        view(&record)
    }

    fn mmap(kind: u32, misc: u16, identity: &[u8], name: &[u8]) -> Vec<u8> {
        let endian = ByteOrder::Little;
        let mut body = Vec::new();
        endian.write_u32(&mut body, 7);
        endian.write_u32(&mut body, 8);
        for word in [0x1000, 0x200, 0x40] {
            endian.write_u64(&mut body, word);
        }
        body.extend_from_slice(identity);
        body.extend_from_slice(name);
        let mut out = Vec::new();
        endian.write_u32(&mut out, kind);
        endian.write_u16(&mut out, misc);
        endian.write_u16(&mut out, (8 + body.len()) as u16);
        out.extend(body);
        out
    }

    #[test]
    fn only_images_of_the_kernel_have_a_symbol_behind_their_name() {
        for (name, expected) in [
            ("[kernel.kallsyms]_text", "[kernel.kallsyms]"),
            ("[ext4]", "[ext4]"),
            ("[unclosed", "[unclosed"),
            ("/lib/modules/6.1/[a]/b.ko", "/lib/modules/6.1/[a]/b.ko"),
        ] {
            let record = mmap(
                record::MMAP,
                record::MISC_KERNEL,
                &[],
                format!("{name}\0").as_bytes(),
            );
            let view = |record: &Record<'_>| {
                KernelMap::parse(record, ByteOrder::Little).map(|map| map.name.to_vec())
            };
            assert_eq!(parse_one(&record, view).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn maps_are_read_from_both_records() {
        let mut identity = Vec::new();
        identity.extend_from_slice(&8u32.to_le_bytes());
        identity.extend_from_slice(&1u32.to_le_bytes());
        identity.extend_from_slice(&42u64.to_le_bytes());
        identity.extend_from_slice(&[0; 16]);
        let view = |record: &Record<'_>| {
            let map = Mmap::parse(record, ByteOrder::Little)?;
            Some((
                map.pid,
                map.range.size(),
                map.file.map(|f| f.inode),
                map.name.to_vec(),
            ))
        };
        assert_eq!(
            parse_one(&mmap(record::MMAP2, 2, &identity, b"/a/b\0\0\0\0"), view),
            Some((Pid(7), 0x200, Some(42), b"/a/b".to_vec()))
        );
        assert_eq!(
            parse_one(
                &mmap(record::MMAP2, 2 | record::MISC_MMAP_BUILD_ID, &identity, b"/a\0"),
                view
            ),
            Some((Pid(7), 0x200, None, b"/a".to_vec()))
        );
        assert_eq!(
            parse_one(&mmap(record::MMAP, 2, &[], b"no end"), view),
            Some((Pid(7), 0x200, None, b"no end".to_vec()))
        );
        let marked = record::MISC_GUEST_USER | record::MISC_MMAP_BUILD_ID;
        assert!(parse_one(&mmap(record::MMAP2, marked, &identity, b"/a\0"), view).is_some());
        let guest = record::MISC_GUEST_USER;
        assert_eq!(
            parse_one(&mmap(record::MMAP2, guest, &identity, b"/a\0"), view),
            None
        );
        // The kernel's own mapping, and a truncated record.
        assert_eq!(parse_one(&mmap(record::MMAP, 1, &[], b"[kernel]"), view), None);
        assert_eq!(
            parse_one(&mmap(record::MMAP2, 2, &identity[..10], b""), view),
            None
        );
    }

    #[test]
    fn memory_for_code_is_distinguished_from_files() {
        for (name, backing) in [
            (&b"//anon"[..], Backing::Anonymous),
            (b"/memfd:doublemapper (deleted)", Backing::Shared),
            (b"/tmp/.code-Xy12 (deleted)", Backing::Shared),
            (b"/dev/shm/region", Backing::Shared),
            (b"/SYSV00000000 (deleted)", Backing::Shared),
            (b"[heap]", Backing::Shared),
            (b"[stack]", Backing::Shared),
            (b"/dev/shm/out.elf/jitted-7-1.so", Backing::File),
            (b"/tmp/library.so", Backing::File),
            (b"/opt/replaced.so (deleted)", Backing::File),
            (
                b"/tmp/libnetty_transport_native_epoll_x86_641.so (deleted)",
                Backing::File,
            ),
            (b"/dev/zero (deleted)", Backing::Anonymous),
            (b"[anon:v8]", Backing::Anonymous),
            (b"/tmp/perf-17.map", Backing::Anonymous),
            (b"/usr/bin/node", Backing::File),
            (b"[vdso]", Backing::File),
        ] {
            let bytes = mmap(record::MMAP, 2, &[], name);
            parse_one(&bytes, |record| {
                let map = Mmap::parse(record, ByteOrder::Little).unwrap();
                assert_eq!(map.backing(), backing, "{name:?}");
            });
        }
    }

    #[test]
    fn a_process_ends_with_its_first_thread() {
        let ends = |kind, tid| {
            let mut bytes = Vec::new();
            for word in [kind, 24 << 16, 5, 1, tid, 1] {
                ByteOrder::Little.write_u32(&mut bytes, word);
            }
            parse_one(&bytes, |record| exited_pid(record, ByteOrder::Little))
        };
        assert_eq!(ends(record::EXIT, 5), Some(Pid(5)));
        assert_eq!(ends(record::EXIT, 6), None);
        assert_eq!(ends(record::FORK, 5), None);
    }

    #[test]
    fn a_new_thread_is_not_a_fork() {
        let mut bytes = Vec::new();
        for word in [record::FORK, 24 << 16, 5, 5, 6, 5] {
            ByteOrder::Little.write_u32(&mut bytes, word);
        }
        let fork = |record: &Record<'_>| Fork::parse(record, ByteOrder::Little);
        assert_eq!(parse_one(&bytes, fork), None);
        bytes[8] = 9;
        let expected = Fork {
            child: Pid(9),
            parent: Pid(5),
            is_synthesized: false,
        };
        assert_eq!(parse_one(&bytes, fork), Some(expected));
        // The upper byte of `misc`.
        bytes[5] = (record::MISC_FORK_EXEC >> 8) as u8;
        let expected = Fork {
            is_synthesized: true,
            ..expected
        };
        assert_eq!(parse_one(&bytes, fork), Some(expected));
    }
}
