//! Other machines: objects are for the machine of the dump, not for the profile's.

use std::path::{Path, PathBuf};

use jitdump::ByteOrder;

use crate::objects::remarks;
use crate::support::dump::{DumpWriter, I386, X86_64};
use crate::support::generator::{Generated, Plan, generate};
use crate::support::profile::ProfileWriter;
use crate::support::shown::assert_named_by;
use crate::support::symbolizers;
use crate::support::tools::{errors, report, run, text};
use crate::support::{capture, codes, has_code, inject, inject_into, jitinject, objects_of, perf, scratch};

/// A machine, its names in readers, and a function of its code.
struct Kind {
    number: u32,
    endian: ByteOrder,
    is_32: bool,
    /// As printed by readelf.
    machine: &'static str,
    flags: &'static str,
    /// DWARF numbers of the return address register and the stack pointer.
    registers: [u8; 2],
    code: &'static [u8],
    /// Instructions of the code as printed by llvm-objdump; empty for a machine that LLVM 14 does not support.
    instructions: &'static [&'static str],
}

const LITTLE: ByteOrder = ByteOrder::Little;
const BIG: ByteOrder = ByteOrder::Big;

#[rustfmt::skip]
const KINDS: [Kind; 18] = [
    Kind {
        number: X86_64, endian: LITTLE, is_32: false, machine: "Advanced Micro Devices X86-64", flags: "0x0",
        registers: [16, 7], code: b"\xb8\x01\x00\x00\x00\xc3", instructions: &["movl", "retq"],
    },
    Kind {
        number: I386, endian: LITTLE, is_32: true, machine: "Intel 80386", flags: "0x0", registers: [8, 4],
        code: b"\xb8\x01\x00\x00\x00\xc3", instructions: &["movl", "retl"],
    },
    Kind {
        number: 183, endian: LITTLE, is_32: false, machine: "AArch64", flags: "0x0", registers: [30, 31],
        code: b"\x20\x00\x80\x52\xc0\x03\x5f\xd6", instructions: &["mov", "ret"],
    },
    Kind {
        number: 183, endian: BIG, is_32: false, machine: "AArch64", flags: "0x0", registers: [30, 31],
        code: b"\x20\x00\x80\x52\xc0\x03\x5f\xd6", instructions: &["mov", "ret"],
    },
    Kind {
        number: 40, endian: LITTLE, is_32: true, machine: "ARM", flags: "0x5000000, Version5 EABI",
        registers: [14, 13], code: b"\x01\x00\xa0\xe3\x02\x0b\x31\xee\x1e\xff\x2f\xe1",
        instructions: &["mov", "vadd.f64", "bx"],
    },
    Kind {
        number: 40, endian: BIG, is_32: true, machine: "ARM", flags: "0x5800000, Version5 EABI, BE8",
        registers: [14, 13], code: b"\x01\x00\xa0\xe3\x02\x0b\x31\xee\x1e\xff\x2f\xe1",
        instructions: &["mov", "vadd.f64", "bx"],
    },
    Kind {
        number: 243, endian: LITTLE, is_32: false, machine: "RISC-V", flags: "0x5, RVC, double-float ABI",
        registers: [1, 2], code: b"\x05\x45\x53\xf5\xc5\x02\x82\x80", instructions: &["li", "fadd.d", "ret"],
    },
    Kind {
        number: 243, endian: LITTLE, is_32: true, machine: "RISC-V", flags: "0x5, RVC, double-float ABI",
        registers: [1, 2], code: b"\x05\x45\x53\xf5\xc5\x02\x82\x80", instructions: &["li", "fadd.d", "ret"],
    },
    Kind {
        number: 21, endian: LITTLE, is_32: false, machine: "PowerPC64", flags: "0x2, abiv2",
        registers: [65, 1], code: b"\x01\x00\x60\x38\x08\x00\x81\xe8\x20\x00\x80\x4e",
        instructions: &["li", "ld", "blr"],
    },
    Kind {
        number: 21, endian: BIG, is_32: false, machine: "PowerPC64", flags: "0x0", registers: [65, 1],
        code: b"\x38\x60\x00\x01\xe8\x81\x00\x08\x4e\x80\x00\x20", instructions: &["li", "ld", "blr"],
    },
    Kind {
        number: 20, endian: BIG, is_32: true, machine: "PowerPC", flags: "0x0", registers: [65, 1],
        code: b"\x38\x60\x00\x01\x80\x81\x00\x08\x4e\x80\x00\x20", instructions: &["li", "lwz", "blr"],
    },
    Kind {
        number: 22, endian: BIG, is_32: false, machine: "IBM S/390", flags: "0x0", registers: [14, 15],
        code: b"\xa7\x29\x00\x01\xe3\x10\xf0\x08\x00\x04\x07\xfe", instructions: &["lghi", "lg", "br"],
    },
    Kind {
        number: 8, endian: BIG, is_32: false, machine: "MIPS R3000", flags: "0x80000000, mips64r2",
        registers: [31, 29], code: b"\x64\x02\x00\x01\x7c\x43\x08\x43\x03\xe0\x00\x08",
        instructions: &["daddiu", "dext", "jr"],
    },
    Kind {
        number: 8, endian: LITTLE, is_32: false, machine: "MIPS R3000", flags: "0x80000000, mips64r2",
        registers: [31, 29], code: b"\x01\x00\x02\x64\x43\x08\x43\x7c\x08\x00\xe0\x03",
        instructions: &["daddiu", "dext", "jr"],
    },
    Kind {
        number: 8, endian: BIG, is_32: true, machine: "MIPS R3000", flags: "0x70001000, o32, mips32r2",
        registers: [31, 29], code: b"\x24\x02\x00\x01\x7c\x43\x08\x40\x03\xe0\x00\x08",
        instructions: &["addiu", "ext", "jr"],
    },
    Kind {
        number: 8, endian: LITTLE, is_32: true, machine: "MIPS R3000", flags: "0x70001000, o32, mips32r2",
        registers: [31, 29], code: b"\x01\x00\x02\x24\x40\x08\x43\x7c\x08\x00\xe0\x03",
        instructions: &["addiu", "ext", "jr"],
    },
    Kind {
        number: 258, endian: LITTLE, is_32: false, machine: "LoongArch", flags: "0x43, DOUBLE-FLOAT, OBJ-v1",
        registers: [1, 3], code: b"\x04\x04\x80\x03\x20\x08\x01\x01\x20\x00\x00\x4c", instructions: &[],
    },
    Kind {
        number: 43, endian: BIG, is_32: false, machine: "Sparc v9", flags: "0x0", registers: [15, 14],
        code: b"\x90\x10\x20\x01\xd4\x5a\x40\x00\x81\xc3\xe0\x08", instructions: &["mov", "ldx", "retl"],
    },
];

impl Kind {
    /// Returns the address of the code.
    fn address(&self) -> u64 {
        if self.is_32 { 0x5000_0000 } else { 0x7f_5000_0000 }
    }

    fn class(&self) -> &'static str {
        if self.is_32 { "ELF32" } else { "ELF64" }
    }

    fn name(&self) -> String {
        format!("{} {} {:?}", self.machine, self.class(), self.endian)
    }

    fn write_address(&self, out: &mut Vec<u8>, address: u64) {
        if self.is_32 {
            self.endian.write_u32(out, address as u32)
        } else {
            self.endian.write_u64(out, address)
        }
    }

    /// Returns an `.eh_frame` for the function with absolute addresses of the machine's size.
    fn tables(&self) -> Vec<u8> {
        const DEF_CFA: u8 = 0x0c;
        const ABSOLUTE: u8 = 0;
        let [return_address, stack] = self.registers;
        let data_factor = if self.is_32 { 0x7c } else { 0x78 };
        let mut cie = vec![0; 4];
        cie.extend_from_slice(&[1, b'z', b'R', 0, 1, data_factor, return_address, 1, ABSOLUTE]);
        cie.extend_from_slice(&[DEF_CFA, stack, 0]);
        cie.resize(20, 0);
        let mut fde = Vec::new();
        self.endian.write_u32(&mut fde, cie.len() as u32 + 8);
        self.write_address(&mut fde, self.address());
        self.write_address(&mut fde, self.code.len() as u64);
        fde.resize(28, 0);
        let mut out = Vec::new();
        for entry in [cie, fde, Vec::new()] {
            self.endian.write_u32(&mut out, entry.len() as u32);
            out.extend_from_slice(&entry);
        }
        out
    }
}

/// Writes the object of a function of the machine, with lines and unwinding tables, from a little-endian profile.
fn object(folder: &Path, kind: &Kind) -> PathBuf {
    let path = folder.join("jit-7.dump");
    let address = kind.address();
    let mut dump = DumpWriter::new(kind.endian, kind.number, 7);
    dump.lines(1000, address, b"/src/a.c", &[(address, 10), (address + 4, 11)]);
    dump.unwinding(1000, &kind.tables(), &[1, 0xff, 0xff, 0xff]);
    dump.load(1000, address, 0, b"a_function", kind.code);
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(LITTLE);
    profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
    profile.sample(7, 2000, &[address + 2], None);
    let input = folder.join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder, &input, &[]);
    objects_of(&output).remove(0)
}

/// Returns the mnemonics that llvm-objdump prints.
fn instructions(objects: &[PathBuf], more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["-d"];
    arguments.extend_from_slice(more);
    arguments.extend(objects.iter().map(|object| text(object)));
    let shown = report("llvm-objdump", &arguments);
    assert!(!shown.contains("warning"), "{shown}");
    let lines = shown.lines().filter(|line| line.starts_with(' '));
    let instructions = lines.filter_map(|line| line.split('\t').nth(1)?.split(' ').next());
    instructions.map(str::to_owned).collect()
}

#[test]
fn objects_are_those_of_the_dumps_machine() {
    for kind in &KINDS {
        let folder = scratch();
        let name = kind.name();
        let object = object(folder.path(), kind);
        let path = text(&object);
        let header = run("readelf", &["-hW", path]);
        let fields = header.lines().filter_map(|line| line.split_once(':'));
        let fields: Vec<(&str, &str)> = fields.map(|(key, value)| (key.trim(), value.trim())).collect();
        let data = match kind.endian {
            LITTLE => "2's complement, little endian",
            BIG => "2's complement, big endian",
        };
        for expected in [
            ("Class", kind.class()),
            ("Data", data),
            ("Machine", kind.machine),
            ("Flags", kind.flags),
        ] {
            assert!(fields.contains(&expected), "{name}: {expected:?}: {header}");
        }
        let shown = instructions(std::slice::from_ref(&object), &[]);
        assert!(
            kind.instructions.is_empty() || shown == kind.instructions,
            "{name}: {shown:?}"
        );

        let found = remarks(std::slice::from_ref(&object));
        assert!(found.is_empty(), "{name}: {}", found.join("\n"));
        let all = [
            "--file-headers",
            "--sections",
            "--symbols",
            "--unwind",
            "--notes",
            path,
        ];
        assert_eq!(errors("llvm-readobj", &all), "", "{name}");
        assert_eq!(errors("eu-readelf", &["-a", path]), "", "{name}");
        let verified = report("llvm-dwarfdump", &["--verify", path]);
        assert!(verified.contains("No errors."), "{name}: {verified}");
        assert!(!verified.contains("warning"), "{name}: {verified}");
        for (program, ask) in symbolizers::ALL {
            let shown = ask(&object, &[0x40, 0x44]);
            let lines: Vec<_> = shown
                .iter()
                .flatten()
                .map(|site| (&site.file[..], site.line))
                .collect();
            assert_eq!(lines, [("/src/a.c", 10), ("/src/a.c", 11)], "{name}: {program}");
        }
    }
}

#[test]
fn tables_for_unwinding_are_those_of_the_dumps_machine() {
    for kind in &KINDS {
        let folder = scratch();
        let object = object(folder.path(), kind);
        let end = 0x40 + kind.code.len() as u64;
        for (program, arguments, between) in [
            ("readelf", "--debug-dump=frames", ".."),
            ("llvm-dwarfdump", "--eh-frame", "..."),
        ] {
            let shown = run(program, &[arguments, text(&object)]);
            let entries: Vec<&str> = shown
                .lines()
                .filter_map(|line| line.split_once(" pc="))
                .map(|e| e.1)
                .collect();
            let [entry] = entries[..] else {
                panic!("{}: {program}: {shown}", kind.name())
            };
            let (first, last) = entry.split_once(between).unwrap();
            let addresses = [first, last].map(|digits| u64::from_str_radix(digits, 16).unwrap());
            assert_eq!(addresses, [0x40, end], "{}: {program}: {shown}", kind.name());
        }
    }
}

/// Each machine's code is named, in profiles of both endiannesses.
#[test]
fn every_machine_and_byte_order_is_named_whole() {
    for kind in &KINDS {
        for endian in [LITTLE, BIG] {
            let folder = scratch();
            let plan = Plan {
                functions: 150,
                samples: 400,
                places: 40,
                moves: true,
                endian,
                dump_order: Some(kind.endian),
                machine: kind.number,
                is_32: kind.is_32,
                ..Plan::default()
            };
            let Generated { profile, expected } = generate(folder.path(), &plan);
            let output = inject_into(folder.path(), &profile, &[]);
            for program in perf::programs() {
                assert_named_by(&program, &output, &expected);
            }
            let header = run("readelf", &["-hW", text(&objects_of(&output)[0])]);
            assert!(header.contains(kind.class()), "{}: {header}", kind.name());
        }
    }
}

/// V8's real code of other machines. Instructions that llvm-objdump does not recognise are constants between them,
/// on machines that have those.
#[test]
fn recordings_of_other_machines_are_disassembled() {
    for (name, class, machine, more, per_mille) in [
        ("node18-i386", "ELF32", "Intel 80386", &[][..], 0),
        ("node18-arm-dump", "ELF32", "ARM", &[], 25),
        ("node18-mipsle-dump", "ELF32", "MIPS R3000", &[], 0),
        ("node18-mips64le-dump", "ELF64", "MIPS R3000", &[], 0),
        ("node20-riscv64-dump", "ELF64", "RISC-V", &[], 0),
        ("node20-arm64-dump", "ELF64", "AArch64", &[], 13),
        ("node20-ppc64le-dump", "ELF64", "PowerPC64", &[], 0),
        // Nothing in an s390x object specifies the CPU model.
        ("node20-s390x-dump", "ELF64", "IBM S/390", &["--mcpu=z14"], 6),
    ] {
        let folder = scratch();
        let dumps = capture::folder(name);
        let output = folder.path().join("out.data");
        let said = inject(
            &capture::profile(name),
            &output,
            &["--all", "--jitdump", text(&dumps)],
        );
        // Samples of a program under QEMU are in QEMU's translated code, which no file describes.
        let mut others = codes(&said);
        others.retain(|code| !["JI172", "JI175", "JI176"].contains(code));
        assert!(others.is_empty(), "{name}: {said}");
        let objects = objects_of(&output);
        for object in &objects {
            let header = run("readelf", &["-hW", text(object)]);
            assert!(
                header.contains(class) && header.contains(machine),
                "{name}: {header}"
            );
        }
        let found = instructions(&objects, more);
        let unknown = found
            .iter()
            .filter(|instruction| *instruction == "<unknown>")
            .count();
        assert!(found.len() > 5000, "{name}: {}", found.len());
        assert!(
            unknown * 1000 <= found.len() * per_mille,
            "{name}: {unknown} of {}",
            found.len()
        );
        let mut all = vec!["--file-headers", "--sections", "--symbols", "--unwind", "--notes"];
        all.extend(objects.iter().map(|object| text(object)));
        assert_eq!(errors("llvm-readobj", &all), "", "{name}");
    }
}

/// V8's lines are off by the size of an ELF header, which depends on the class. None of them is outside its function once that is
/// subtracted, and optimized code has several.
#[test]
fn lines_of_v8_start_at_the_code_on_machines_of_32_bits() {
    for (name, size) in [
        ("node18-i386", "by 0x34"),
        ("node18-arm-dump", "by 0x34"),
        ("node18-mipsle-dump", "by 0x34"),
        ("node18-mips64le-dump", "by 0x40"),
    ] {
        let folder = scratch();
        let dumps = capture::folder(name);
        let output = folder.path().join("out.data");
        let said = inject(
            &capture::profile(name),
            &output,
            &["--all", "--jitdump", text(&dumps)],
        );
        assert!(
            !has_code(&said, "JI025") && !has_code(&said, "JI027"),
            "{name}: {said}"
        );
        let files = std::fs::read_dir(&dumps)
            .unwrap()
            .map(|file| file.unwrap().path());
        let dump = files
            .into_iter()
            .find(|path| path.extension().is_some_and(|suffix| suffix == "dump"));
        let checked = jitinject().arg("check").arg(dump.unwrap()).output().unwrap();
        let found = String::from_utf8_lossy(&checked.stdout);
        let biased = found.lines().find(|line| line.contains("warning[JD073]"));
        assert!(biased.is_some_and(|line| line.contains(size)), "{name}: {found}");
    }
}

/// The profile's machine determines the class of a machine ID with two classes, and replaces a missing machine ID.
#[test]
fn the_profiles_machine_determines_the_class() {
    const ARCHITECTURE: u32 = 6;
    for (architecture, number, class) in [
        ("s390", 22, "ELF32"),
        ("s390x", 22, "ELF64"),
        ("riscv32", 243, "ELF32"),
        ("riscv64", 243, "ELF64"),
        ("mips", 8, "ELF32"),
        ("mips64", 8, "ELF64"),
        // The dump has no machine ID.
        ("i686", 0, "ELF32"),
        ("loongarch64", 0, "ELF64"),
    ] {
        let folder = scratch();
        let path = folder.path().join("jit-7.dump");
        let mut dump = DumpWriter::new(BIG, number, 7);
        dump.load(1000, 0x4000_0000, 0, b"a_function", &[0; 64]);
        std::fs::write(&path, dump.bytes).unwrap();
        let mut profile = ProfileWriter::new(BIG);
        let mut content = Vec::new();
        BIG.write_u32(&mut content, 64);
        content.extend_from_slice(architecture.as_bytes());
        content.resize(4 + 64, 0);
        profile.features.push((ARCHITECTURE, content));
        profile.mmap2(7, 0x6000_0000, 4096, 0, text(&path), 500);
        profile.sample(7, 2000, &[0x4000_0004], None);
        let input = folder.path().join("perf.data");
        std::fs::write(&input, profile.finish()).unwrap();
        let output = inject_into(folder.path(), &input, &[]);
        let header = run("readelf", &["-hW", text(&objects_of(&output)[0])]);
        assert!(header.contains(class), "{architecture}: {header}");
    }
}

/// On a 64-bit kernel, a 32-bit process has its mappings right below the stack, at the end of its address space.
#[test]
fn tables_find_a_place_at_the_end_of_32_bits() {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let address = 0xf7c0_0000;
    let mut dump = DumpWriter::new(LITTLE, I386, 7);
    let (tables, header) = crate::support::dump::tables(64, 48);
    dump.unwinding(1000, &tables, &header);
    dump.load(1000, address, 0, b"a_function", &[0x90; 64]);
    std::fs::write(&path, dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(LITTLE);
    profile.mmap2(7, address, 0x10_0000, address, "//anon", 400);
    profile.mmap2(7, 0xf7f0_0000, 0x1000, 0, text(&path), 500);
    profile.sample(7, 2000, &[address + 4], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = folder.path().join("out.data");
    let said = inject(&input, &output, &[]);
    assert!(codes(&said).is_empty(), "{said}");
    let frames = run("readelf", &["--debug-dump=frames", text(&objects_of(&output)[0])]);
    assert!(frames.contains("pc=00000040..00000080"), "{frames}");
}
