//! C interface: which function, line and inlined calls are at an address at a time.
//!
//! `include/jitinject.h` is made from this file. No function panics, whatever a jitdump contains.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use errno::{Errno, set_errno};
use jitdump::symbolize::{Function, Jitdump, Process};
use jitdump::{Address, Error, ErrorKind, Time};

/// The functions of a process or of a file. One thread at a time may use it.
pub struct Symbolizer {
    source: Source,
    error: CString,
    /// Strings that the last answer points to.
    strings: Vec<CString>,
}

enum Source {
    File(Box<Jitdump>),
    Process(Process),
}

/// A function at an address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FunctionInfo {
    /// Name, with zero bytes removed. Valid until the next call with the symbolizer.
    pub name: *const c_char,
    /// Compiler tier; NULL if it is unknown. Valid as long as the name.
    pub tier: *const c_char,
    /// Start address of the code.
    pub start: u64,
    /// Size of the code in bytes.
    pub size: u64,
    /// Time at which it was loaded or moved there, in nanoseconds.
    pub since: u64,
}

/// A function or an inlined call at an address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameInfo {
    /// Name of the function; of an inlined one, possibly empty. Valid until the next call with the symbolizer.
    pub function: *const c_char,
    /// Path of the source file; NULL if it is unknown. Valid as long as the name.
    pub file: *const c_char,
    /// Executed line, or in a caller the line of the call, from 1; 0 if it is unknown.
    pub line: u32,
    /// Column, from 1; 0 if it is unknown.
    pub column: u32,
    /// Whether the call was inlined into the next frame.
    pub is_inlined: bool,
}

/// The latest time: asks for the code that is there now.
pub const JITINJECT_NOW: u64 = u64::MAX - 1;

impl Symbolizer {
    fn into_raw(source: Source) -> *mut Self {
        Box::into_raw(Box::new(Self {
            source,
            error: CString::default(),
            strings: Vec::new(),
        }))
    }

    fn find(&self, address: u64, time: u64) -> Option<(&Jitdump, Function)> {
        let (address, time) = (Address(address), Time(time));
        match &self.source {
            Source::File(dump) => Some((dump, dump.function_at(address, time)?)),
            Source::Process(process) => process.function_at(address, time),
        }
    }
}

/// Keeps a string. Its bytes stay where they are, even if the list grows.
fn keep(strings: &mut Vec<CString>, text: Vec<u8>) -> *const c_char {
    let text = text.into_iter().filter(|&byte| byte != 0).collect::<Vec<u8>>();
    let text = CString::new(text).unwrap_or_default();
    let pointer = text.as_ptr();
    strings.push(text);
    pointer
}

fn keep_optional(strings: &mut Vec<CString>, text: Option<Vec<u8>>) -> *const c_char {
    text.map_or(ptr::null(), |text| keep(strings, text))
}

/// Returns NULL, and sets `errno` to the reason.
fn refused(reason: Option<i32>) -> *mut Symbolizer {
    /// Of what the system does not refuse: NULL in place of a path, or a file that is not a regular one.
    const EINVAL: i32 = 22;
    set_errno(Errno(reason.unwrap_or(EINVAL)));
    ptr::null_mut()
}

/// Opens a jitdump, which may still be written. Returns NULL, and sets errno, if the file cannot be opened. Nothing is read
/// before jitinject_update().
///
/// # Safety
///
/// `path` is a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_open_file(path: *const c_char) -> *mut Symbolizer {
    if path.is_null() {
        return refused(None);
    }
    // SAFETY: it is a string, as the caller promises.
    let path = unsafe { CStr::from_ptr(path) };
    match Jitdump::open(Path::new(OsStr::from_bytes(path.to_bytes()))) {
        Ok(dump) => Symbolizer::into_raw(Source::File(Box::new(dump))),
        Err(error) => {
            let reason = match error.kind() {
                ErrorKind::Unreadable(cause) => cause.raw_os_error(),
                _ => None,
            };
            drop(error);
            refused(reason)
        }
    }
}

/// Creates a symbolizer for the jitdumps of a running process. Never returns NULL. At most 64 of them are open, those that were
/// found last; each takes a file descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn jitinject_open_process(pid: u32) -> *mut Symbolizer {
    Symbolizer::into_raw(Source::Process(Process::new(pid)))
}

/// Frees a symbolizer and all strings of its answers. NULL is ignored.
///
/// # Safety
///
/// `symbolizer` is from an open function, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_close(symbolizer: *mut Symbolizer) {
    if !symbolizer.is_null() {
        // SAFETY: it is from `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(symbolizer) });
    }
}

/// Reads what was written since the last call. Returns the number of functions that were loaded or moved, or -1 after an error
/// (see jitinject_error()); what was read before stays usable. It is an error if the mappings of a process cannot be read and no
/// jitdump of it is open; if one is open, it is read without them.
///
/// # Safety
///
/// `symbolizer` is from an open function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_update(symbolizer: *mut Symbolizer) -> i64 {
    // SAFETY: it is valid or NULL, and only the caller uses it.
    let symbolizer = unsafe { symbolizer.as_mut() };
    updated(symbolizer, Jitdump::update)
}

/// Like jitinject_update(), for a file that nothing writes to any more: damage and an unfinished record at its end are not waited
/// for. For a process, there is no difference.
///
/// # Safety
///
/// `symbolizer` is from an open function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_finish(symbolizer: *mut Symbolizer) -> i64 {
    // SAFETY: it is valid or NULL, and only the caller uses it.
    let symbolizer = unsafe { symbolizer.as_mut() };
    updated(symbolizer, Jitdump::finish)
}

fn updated(symbolizer: Option<&mut Symbolizer>, read: fn(&mut Jitdump) -> Result<usize, Error>) -> i64 {
    let Some(symbolizer) = symbolizer else {
        return -1;
    };
    let updated = match &mut symbolizer.source {
        Source::File(dump) => read(dump),
        Source::Process(process) => process.update(),
    };
    match updated {
        Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Err(error) => {
            symbolizer.error = message(&error);
            -1
        }
    }
}

fn message(error: &Error) -> CString {
    CString::new(error.to_string()).unwrap_or_default()
}

/// Returns the message of the last error. Valid until the next error of the symbolizer.
///
/// # Safety
///
/// `symbolizer` is from an open function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_error(symbolizer: *const Symbolizer) -> *const c_char {
    // SAFETY: it is valid or NULL.
    match unsafe { symbolizer.as_ref() } {
        Some(symbolizer) => symbolizer.error.as_ptr(),
        None => c"no symbolizer".as_ptr(),
    }
}

/// Finds the function whose code contains an address at a time, in nanoseconds of the jitdump's clock (CLOCK_MONOTONIC for nearly
/// all runtimes) or JITINJECT_NOW. Returns false, and leaves `function` alone, if there is none.
///
/// # Safety
///
/// `symbolizer` is from an open function, and `function` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_find(
    symbolizer: *mut Symbolizer,
    address: u64,
    time: u64,
    function: *mut FunctionInfo,
) -> bool {
    // SAFETY: it is valid or NULL, and only the caller uses it.
    let Some(symbolizer) = (unsafe { symbolizer.as_mut() }) else {
        return false;
    };
    let found = symbolizer.find(address, time);
    let found = found.and_then(|(dump, function)| Some((function, dump.symbol(function)?)));
    symbolizer.strings.clear();
    let Some((at, symbol)) = found.filter(|_| !function.is_null()) else {
        return false;
    };
    let info = FunctionInfo {
        name: keep(&mut symbolizer.strings, symbol.name),
        tier: keep_optional(&mut symbolizer.strings, symbol.tier),
        start: at.range.start.0,
        size: at.range.size(),
        since: at.since.0,
    };
    // SAFETY: the caller promises that it can be written.
    unsafe { function.write(info) };
    true
}

/// Finds the source line and the inlined calls at an address at a time: inlined calls first, the function itself last. Writes up to
/// `capacity` of them to `frames`, and returns how many there are, 0 without a function. In V8's optimized code, a line may be
/// that of an inlined function, which is not named.
///
/// # Safety
///
/// `symbolizer` is from an open function, and `frames` has room for `capacity` frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jitinject_frames(
    symbolizer: *mut Symbolizer,
    address: u64,
    time: u64,
    frames: *mut FrameInfo,
    capacity: usize,
) -> usize {
    // SAFETY: it is valid or NULL, and only the caller uses it.
    let Some(symbolizer) = (unsafe { symbolizer.as_mut() }) else {
        return 0;
    };
    let found = symbolizer.find(address, time);
    let found = found.map(|(dump, function)| dump.frames(function, Address(address)));
    symbolizer.strings.clear();
    let found = found.unwrap_or_default();
    let count = found.len();
    let room = if frames.is_null() { 0 } else { capacity };
    for (at, frame) in found.take(room).enumerate() {
        let info = FrameInfo {
            function: keep(&mut symbolizer.strings, frame.function),
            file: keep_optional(&mut symbolizer.strings, frame.file),
            line: frame.line.unwrap_or(0),
            column: frame.column.unwrap_or(0),
            is_inlined: frame.is_inlined,
        };
        // SAFETY: `at` is less than `capacity`, for which the caller promises room.
        unsafe { frames.add(at).write(info) };
    }
    count
}
