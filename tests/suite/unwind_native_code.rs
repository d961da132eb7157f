//! Unwinding through functions of executables and libraries without tables (`--unwind`).

use crate::support::dump::{DumpWriter, X86_64};
use crate::support::elf;
use crate::support::tools::text;
use crate::unwind::{BP, CODE, ENDIAN, Process, STACK, chain, samples};

/// A process with a library of functions without tables, mapped at [`LIBRARY_START`], and with a function of a runtime at [`CALLER`].
struct BuiltIns {
    process: Process,
    _libraries: tempfile::TempDir,
    /// Address of each function.
    functions: Vec<u64>,
}

const LIBRARY_START: u64 = 0x7f20_0000_0000;
const CALLER: u64 = CODE + 0x8000;
/// Return address in the function of the runtime.
const CALLED: u64 = CALLER + 6;

impl BuiltIns {
    fn new(functions: &[(&str, &[u8])]) -> Self {
        // push rbp; mov rbp, rsp; call rax; nop
        let code = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd0, 0x90, 0x90];
        let (file, offsets) = elf::with_functions(functions);
        let mut process = Process::new();
        // Files in /dev/shm are taken for memory.
        let libraries = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = libraries.path().join("libbuiltins.so");
        let size = file.len() as u64;
        std::fs::write(&path, file).unwrap();
        process.profile.mmap2(
            10,
            LIBRARY_START,
            size.next_multiple_of(0x1000),
            0,
            text(&path),
            400,
        );
        let mut dump = DumpWriter::new(ENDIAN, X86_64, 10);
        dump.load(1000, CALLER, 0, b"caller", &code);
        std::fs::write(process.folder.path().join("jit-10.dump"), &dump.bytes).unwrap();
        Self {
            process,
            _libraries: libraries,
            functions: offsets.into_iter().map(|offset| LIBRARY_START + offset).collect(),
        }
    }

    /// Checks the callers of samples with an address, what is at the stack pointer, and the frame pointer.
    fn check(&mut self, cases: &[(u64, [u64; 3], u64, &[u64])]) {
        for (time, (address, top, pointer, _)) in (2000..).zip(cases) {
            let mut words = top.to_vec();
            words.resize(0x20, 0);
            words.extend([0, 0]);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let sample = self.process.sample(time, *address, &bytes);
            self.process.set(sample, BP, *pointer);
        }
        let (parts, said) = self.process.unwind(&["--unwind"]);
        let samples = samples(&parts);
        assert_eq!(samples.len(), cases.len());
        for (sample, (address, _, _, callers)) in samples.iter().zip(cases) {
            let expected = [&[*address][..], callers].concat();
            assert_eq!(chain(sample), expected, "{:x}: {said}", address - LIBRARY_START);
        }
    }
}

/// As V8's built-in functions in an executable.
#[test]
fn callers_of_native_functions_without_tables_are_found_by_their_code() {
    // nop; push rbp; mov rbp, rsp; nop; mov rbp, [rbp]; add rsp, 8; jmp rcx
    let framed = [
        0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x48, 0x8b, 0x6d, 0x00, 0x48, 0x83, 0xc4, 0x08, 0xff, 0xe1,
    ];
    // call rax; nop; ret
    let leaf = [0xff, 0xd0, 0x90, 0xc3];
    let mut built_ins = BuiltIns::new(&[("framed", &framed), ("leaf", &leaf)]);
    let [framed, leaf] = [0, 1].map(|at| built_ins.functions[at]);
    let (frame, caller) = (STACK + 0x100, [CALLED - 1]);
    built_ins.check(&[
        (framed, [CALLED, 0, 0], frame, &caller),
        (framed + 2, [frame, CALLED, 0], frame, &caller),
        (framed + 5, [frame, CALLED, 0], STACK, &caller),
        (framed + 10, [frame, CALLED, 0], frame, &caller),
        (framed + 14, [CALLED, 0, 0], frame, &caller),
        (leaf + 2, [CALLED, 0, 0], frame, &caller),
        // A function of the library called it.
        (leaf + 2, [leaf + 2, 0, 0], frame, &[leaf + 1]),
        // It was entered by a jump: what is on top is not a return address.
        (leaf + 2, [CALLER + 2, 0, 0], frame, &[]),
    ]);
}

#[test]
fn native_functions_of_up_to_64_kibibytes_are_decoded() {
    let code = |size| vec![0x90; size];
    let (fits, large) = (code(1 << 16), code((1 << 16) + 1));
    let mut built_ins = BuiltIns::new(&[("fits", &fits), ("large", &large)]);
    let [fits, large] = [0, 1].map(|at| built_ins.functions[at]);
    let frame = STACK + 0x100;
    built_ins.check(&[
        (fits + 1, [CALLED, 0, 0], frame, &[CALLED - 1]),
        (large + 1, [CALLED, 0, 0], frame, &[]),
    ]);
}
