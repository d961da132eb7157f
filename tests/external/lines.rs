//! Lines and inlined calls: all readers of an object see what the runtime wrote.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use jitdump::ByteOrder;
use jitinject::InjectOptions;
use object::{Object as _, ObjectSymbol as _};

use crate::support::damage::damage;
use crate::support::dump::{DumpWriter, X86_64, tables};
use crate::support::generator::Random;
use crate::support::lines::{LAYOUTS, Layout, STRETCH, lists, model, positions, write_lines};
use crate::support::profile::{ProfileWriter, UserStack, field};
use crate::support::reports::{inject_with_summary, only};
use crate::support::symbolizers::{self, Site};
use crate::support::tools::{report, run, text};
use crate::support::{
    capture, codes, has_code, inject, inject_capture, inject_into, objects_of, perf, scratch,
};

const REGION: u64 = 0x7000_0000;
/// Distance between the starts of functions.
const DISTANCE: u64 = 0x200;
const PID: u32 = 7;

/// A profile with one sample in each of some functions, all derived from [`model`].
struct Made {
    folder: tempfile::TempDir,
    input: PathBuf,
}

fn make(layout: Layout, endian: ByteOrder, machine: u32, count: u32) -> Made {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(endian, machine, PID);
    let mut profile = ProfileWriter::new(endian);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&path), 500);
    for number in 0..count {
        let model = model(number);
        let address = REGION + u64::from(number) * DISTANCE;
        let time = 1000 + u64::from(number);
        write_lines(&mut dump, layout, time, address, &model);
        let code = vec![number as u8; model.len() * STRETCH as usize];
        dump.load(
            time,
            address,
            number.into(),
            format!("fn_{number}").as_bytes(),
            &code,
        );
        profile.sample(PID, 1_000_000 + u64::from(number), &[address + 1], None);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    Made { folder, input }
}

fn number_of(object: &Path) -> u32 {
    let bytes = std::fs::read(object).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut numbers = file
        .symbols()
        .filter_map(|symbol| symbol.name().ok()?.rsplit('_').next()?.parse().ok());
    numbers.next().unwrap()
}

fn verify(object: &Path) {
    let said = report("llvm-dwarfdump", &["--verify", text(object)]);
    assert!(said.contains("No errors."), "{}: {said}", object.display());
    assert!(!said.contains("warning"), "{}: {said}", object.display());
}

/// Offset of the code in an object.
const TEXT: u64 = 0x40;

/// Returns the first and the last byte of each stretch of function `number`, whose code starts at `start`, and the
/// expected call chain. Without inlined calls, the innermost line belongs to the function.
fn sites(number: u32, start: u64, layout: Layout) -> Vec<(u64, Vec<Site>)> {
    let stretches = model(number).into_iter().zip(0u64..);
    let sites = stretches.flat_map(|(mut chain, at)| {
        if layout == Layout::Lines {
            chain[0].function = chain.last().unwrap().function.clone();
            chain.truncate(1);
        }
        let first = start + at * u64::from(STRETCH);
        [(first, chain.clone()), (first + u64::from(STRETCH) - 1, chain)]
    });
    sites.collect()
}

/// Returns the address of a symbol.
fn address_of(object: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(object).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut symbols = file.symbols();
    let symbol = symbols.find(|symbol| symbol.name() == Ok(name)).unwrap();
    symbol.address()
}

fn assert_sites(object: &Path, sites: Vec<(u64, Vec<Site>)>, what: &str) {
    let (addresses, expected): (Vec<u64>, Vec<Vec<Site>>) = sites.into_iter().unzip();
    for (name, ask) in symbolizers::ALL {
        let shown = ask(object, &addresses);
        assert_eq!(shown, expected, "{what}, {name}, {}", object.display());
    }
}

#[test]
fn every_reader_sees_the_same_lines_and_inlined_calls() {
    const FUNCTIONS: u32 = 20;
    for layout in LAYOUTS {
        let made = make(layout, ByteOrder::Little, X86_64, FUNCTIONS);
        for version in ["4", "5"] {
            let what = format!("{layout:?}, DWARF {version}");
            let output = inject_into(made.folder.path(), &made.input, &["--dwarf", version]);
            let objects = objects_of(&output);
            assert_eq!(objects.len(), FUNCTIONS as usize);
            for object in objects {
                assert_sites(&object, sites(number_of(&object), TEXT, layout), &what);
            }
            let more = ["--dwarf", version, "--layout", "image"];
            let image = &objects_of(&inject_into(made.folder.path(), &made.input, &more))[..];
            let [image] = image else { panic!("{image:?}") };
            // Whether other addresses precede the code depends on the directory of the jitdump.
            let first = address_of(image, "fn_0");
            let start = |number| first + u64::from(number) * DISTANCE;
            let all = (0..FUNCTIONS).flat_map(|number| sites(number, start(number), layout));
            assert_sites(image, all.collect(), &what);
            verify(image);
        }
    }
}

/// The function is declared in one file, and its first row is in the next.
#[test]
fn first_rows_have_the_right_file() {
    let mut model = model(0);
    let first = Site::new("fn_0", "src/a.js", 7);
    model[0].insert(0, first.clone());
    for version in ["4", "5"] {
        let made = with_records(b"fn_0", |dump| {
            write_lines(dump, Layout::Lists, 1000, REGION, &model);
        });
        let object = only_object(&made, &["--dwarf", version]);
        let sites = [0, u64::from(STRETCH) - 1].map(|at| (TEXT + at, vec![first.clone()]));
        assert_sites(&object, sites.to_vec(), version);
    }
}

#[test]
fn lines_are_valid_on_every_machine() {
    let (i386, arm, ppc64, s390x) = (3, 40, 21, 22);
    for layout in LAYOUTS {
        for (endian, machine) in [
            (ByteOrder::Little, i386),
            (ByteOrder::Little, arm),
            (ByteOrder::Big, ppc64),
            (ByteOrder::Big, s390x),
        ] {
            let made = make(layout, endian, machine, 3);
            for version in ["4", "5"] {
                let output = inject_into(made.folder.path(), &made.input, &["--dwarf", version]);
                for object in objects_of(&output) {
                    verify(&object);
                    let last = 0x40 + model(0).len() as u64 * u64::from(STRETCH) - 1;
                    let shown = symbolizers::llvm(&object, &[0x40, last]);
                    assert_eq!((shown[0][0].line, shown[1][0].line), (10, 10));
                }
            }
        }
    }
}

#[test]
fn nothing_of_any_recording_is_invalid() {
    for name in capture::WITH_TRUTH.iter().chain(&capture::FOREIGN) {
        for layout in ["function", "image"] {
            let folder = scratch();
            inject_capture(folder.path(), name, &["--all", "--layout", layout]);
            let objects = folder.path().join("out.data.elf");
            if !objects.exists() {
                continue;
            }
            // One run for many files; it prints a line for each file without errors.
            for objects in objects_of(&folder.path().join("out.data")).chunks(500) {
                let mut arguments = vec!["--verify"];
                arguments.extend(objects.iter().map(|object| text(object)));
                let said = report("llvm-dwarfdump", &arguments);
                let without_errors = said.matches("No errors.").count();
                assert_eq!(without_errors, objects.len(), "{name}: {said}");
            }
        }
    }
}

/// Returns the rows of an object: address, line, file. Omits the end of the sequence.
fn rows(object: &Path) -> Vec<(u64, u32, String)> {
    let shown = run("readelf", &["-W", "--debug-dump=decodedline", text(object)]);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let at = fields.iter().position(|field| field.starts_with("0x"))?;
        let line = fields.get(at.checked_sub(1)?)?.parse().ok()?;
        let address = u64::from_str_radix(&fields[at][2..], 16).ok()?;
        Some((address, line, fields[..at - 1].join(" ")))
    };
    shown.lines().filter_map(row).collect()
}

/// Returns the name and the size of an object's function.
fn function(object: &Path) -> (String, u64) {
    let shown = run("readelf", &["-sW", text(object)]);
    let line = shown.lines().find(|line| line.contains(" FUNC ")).unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, name) = line.split_once(&format!(" {} ", fields[6])).unwrap();
    (name.trim().to_owned(), fields[2].parse().unwrap())
}

/// V8's own script: code of the baseline compiler has the line of its function, that of the optimizing compilers those of all inlined
/// functions too.
#[test]
fn lines_of_v8_lie_in_their_functions() {
    let source = std::fs::read_to_string(capture::folder("node20").join("work.js")).unwrap();
    for (name, records) in [
        ("node20", 68),
        ("node22", 67),
        ("node20-arm64-dump", 63),
        ("node20-ppc64le-dump", 62),
        ("node20-s390x-dump", 63),
    ] {
        let folder = scratch();
        let dumps = capture::folder(name);
        let more = ["--all", "--layout", "function", "--jitdump", text(&dumps)];
        let output = inject_into(folder.path(), &capture::profile(name), &more);
        let mut with_lines = 0;
        let mut checked = HashSet::new();
        for object in objects_of(&output) {
            let rows = rows(&object);
            if rows.is_empty() {
                continue;
            }
            with_lines += 1;
            let (symbol, size) = function(&object);
            assert_eq!(rows[0].0, 0x40, "{symbol}");
            assert!(
                rows.iter().all(|row| (0x40..=0x40 + size).contains(&row.0)),
                "{symbol}"
            );
            let clean = |file: &str| !file.chars().any(char::is_control) && !file.contains('\\');
            assert!(rows.iter().all(|row| clean(&row.2)), "{symbol}: {rows:?}");
            let Some((tier, place)) = symbol.strip_prefix("JS:").and_then(|rest| {
                let place = rest.split("/work.js:").nth(1)?;
                Some((rest.chars().next()?, place))
            }) else {
                continue;
            };
            let (line, _) = place.split_once(':').unwrap();
            let line: u32 = line.parse().unwrap();
            let lines = match tier {
                '^' => line..=line,
                _ => 1..=source.lines().count() as u32,
            };
            // Code that is inlined from elsewhere has another file, or no line.
            let mut own = rows.iter().filter(|row| row.1 > 0 && row.2.ends_with("work.js"));
            assert!(
                own.all(|row| lines.contains(&row.1)),
                "{symbol}: {lines:?}, {rows:?}"
            );
            checked.insert(tier);
        }
        assert_eq!(with_lines, records, "{name}");
        assert!(
            checked.contains(&'^') && checked.contains(&'*'),
            "{name}: {checked:?}"
        );
    }
}

#[test]
fn damaged_file_names_are_counted() {
    let folder = scratch();
    let (_, summary) = inject_with_summary(
        &capture::profile("node20"),
        &folder.path().join("out.data"),
        &["--all"],
    );
    assert_eq!(only(&summary, "JI024")["count"], 449);
}

/// `lines.tsv` has the lines of each function in clang's object file of the same code.
#[test]
fn lines_of_llvm_are_those_of_the_same_code_compiled_ahead_of_time() {
    for (name, functions) in [("lli14-mcjit", 7), ("llvm19-jitlink", 4)] {
        let folder = scratch();
        let dumps = capture::folder(name);
        let more = ["--all", "--jitdump", text(&dumps)];
        let output = inject_into(folder.path(), &capture::profile(name), &more);
        let truth = std::fs::read_to_string(dumps.join("lines.tsv")).unwrap();
        let truth: Vec<Vec<&str>> = truth
            .lines()
            .skip(1)
            .map(|line| line.split('\t').collect())
            .collect();
        let objects = objects_of(&output);
        assert_eq!(objects.len(), functions);
        for object in objects {
            let (symbol, size) = function(&object);
            let addresses: Vec<u64> = (0x40..0x40 + size).collect();
            let shown = symbolizers::llvm(&object, &addresses);
            let rows: Vec<_> = truth.iter().filter(|row| row[0] == symbol).collect();
            assert!(!rows.is_empty());
            for (offset, chain) in (0..size).zip(shown) {
                let row = rows
                    .iter()
                    .rfind(|row| row[1].parse::<u64>().unwrap() <= offset)
                    .unwrap();
                let file = Path::new(&chain[0].file).file_name().unwrap().to_str().unwrap();
                let expected = (row[2].parse().unwrap(), row[3]);
                assert_eq!((chain[0].line, file), expected, "{symbol}+{offset:#x}");
            }
        }
    }
}

#[test]
fn perf_shows_the_lines_of_all_files_of_a_function() {
    let folder = scratch();
    let dumps = capture::folder("java17");
    let more = ["--all", "--jitdump", text(&dumps)];
    let output = inject_into(folder.path(), &capture::profile("java17"), &more);
    let several = objects_of(&output).into_iter().filter(|object| {
        let files: HashSet<String> = rows(object).into_iter().map(|row| row.2).collect();
        files.len() > 1
    });
    assert_eq!(several.count(), 99);
    let shown = perf::perf(&["script", "-f", "-i", text(&output), "-G", "-F", "ip,sym,srcline"]);
    let mut files = HashSet::new();
    let mut lines = shown.lines();
    while let Some(line) = lines.next() {
        if line.contains(" LWork") || line.contains(" Work") {
            let place = lines.next().unwrap_or_default().trim();
            files.extend(place.split_once(':').map(|(file, _)| file.to_owned()));
        }
    }
    assert!(files.contains("Work.java"), "{files:?}: {shown}");
    assert!(files.len() > 1, "lines of inlined methods: {files:?}");
}

/// perf 6.1 prints inlined calls in stacks that it unwinds.
#[test]
fn perf_shows_inlined_calls() {
    const FRAME: u8 = 48;
    for layout in [Layout::Lists, Layout::Positions] {
        let folder = scratch();
        let path = folder.path().join("jit-7.dump");
        let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
        let mut profile = ProfileWriter::new(ByteOrder::Little);
        profile.sample_type |= field::REGS_USER | field::STACK_USER;
        profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&path), 500);
        let model = model(0);
        let code = vec![0x90; model.len() * STRETCH as usize];
        let (frame, header) = tables(code.len() as u64, FRAME);
        write_lines(&mut dump, layout, 1000, REGION, &model);
        dump.unwinding(1000, &frame, &header);
        dump.load(1000, REGION, 0, b"fn_0", &code);
        std::fs::write(&path, dump.bytes).unwrap();
        let mut stack = vec![0; usize::from(FRAME) - 8];
        // a caller in its last stretch; its return address is 0
        let returns = REGION + 8 * u64::from(STRETCH) + 5;
        stack.extend_from_slice(&returns.to_le_bytes());
        stack.resize(stack.len() + usize::from(FRAME), 0);
        let stack = UserStack {
            sp: 0x7fff_0000_0000,
            bytes: &stack,
        };
        profile.sample(PID, 2000, &[REGION + 3 * u64::from(STRETCH) + 2], Some(&stack));
        let input = folder.path().join("perf.data");
        std::fs::write(&input, profile.finish()).unwrap();
        let output = inject_into(folder.path(), &input, &["--no-unwind"]);
        let shown = perf::perf(&[
            "script",
            "-f",
            "-i",
            text(&output),
            "--inline",
            "-F",
            "ip,sym,srcline",
        ]);
        let frames: Vec<&str> = shown
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let (symbols, places): (Vec<_>, Vec<_>) =
            frames.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
        let symbols: Vec<&str> = symbols
            .iter()
            .map(|line| line.split_once(' ').unwrap().1)
            .collect();
        assert_eq!(
            symbols,
            ["inlined_b", "inlined_a", "fn_0", "fn_0"],
            "{layout:?}: {shown}"
        );
        assert_eq!(
            places,
            [
                "b.js:200 (inlined)",
                "a.js:30 (inlined)",
                "module_0.js:20",
                "module_0.js:10"
            ]
        );
        let report = [
            "report",
            "-f",
            "-i",
            text(&output),
            "--inline",
            "--stdio",
            "--no-children",
            "-G",
        ];
        let report = perf::perf(&report);
        assert!(report.contains("inlined_a (inlined)"), "{report}");
    }
}

/// The hottest line of `evalNode` according to V8: most samples are in the multiplication, because of the slow
/// modulo after it.
#[test]
fn annotate_shows_the_source_of_a_javascript_function() {
    let folder = scratch();
    let sources = capture::folder("node20");
    let map = format!("/tmp/cap-node20={}", text(&sources));
    let output = inject_into(folder.path(), &capture::profile("node20"), &["--path-map", &map]);
    let symbol = "JS:*evalNode /tmp/cap-node20/work.js:40:18";
    let annotate = |more: &[&str]| {
        let mut arguments = vec!["annotate", "-f", "-i", text(&output), "--stdio"];
        arguments.extend_from_slice(more);
        arguments.push(symbol);
        perf::perf(&arguments)
    };
    let shown = annotate(&[]);
    assert!(
        shown.contains("case '*': return (evalNode(n.l) * evalNode(n.r)) % 1000003;"),
        "{shown}"
    );
    let shown = annotate(&["-l"]);
    let hottest = shown.lines().find(|line| line.contains("work.js:")).unwrap();
    assert!(hottest.trim().ends_with("work.js:45"), "{shown}");
}

/// Writes a dump with one function, after the records that `put` writes.
fn with_records(name: &[u8], put: impl Fn(&mut DumpWriter)) -> Made {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    put(&mut dump);
    dump.load(1000, REGION, 0, name, &[0x90; 9 * STRETCH as usize]);
    std::fs::write(&path, &dump.bytes).unwrap();
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&path), 500);
    profile.sample(PID, 2000, &[REGION + 1], None);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    Made { folder, input }
}

fn only_object(made: &Made, more: &[&str]) -> PathBuf {
    let output = inject_into(made.folder.path(), &made.input, more);
    let mut objects = objects_of(&output);
    objects.retain(|path| path.is_file());
    assert_eq!(objects.len(), 1);
    objects.remove(0)
}

#[test]
fn embedded_sources_are_written_and_shown() {
    let source: String = (1..=30)
        .map(|line| format!("line {line} of the source\n"))
        .collect();
    let made = with_records(b"fn_0", |dump| {
        let embedded = [b"src/module_0.js\0", source.as_bytes()].concat();
        dump.record(827_346_261, 900, &embedded);
        write_lines(dump, Layout::Lists, 1000, REGION, &model(0));
    });
    let object = only_object(&made, &[]);
    let sources = object.parent().unwrap().join("sources");
    let written = Path::new(&symbolizers::llvm(&object, &[0x40])[0][0].file).to_owned();
    assert!(written.starts_with(&sources), "{}", written.display());
    assert_eq!(written.file_name().unwrap(), "module_0.js");
    assert_eq!(std::fs::read_to_string(&written).unwrap(), source);
    verify(&object);
    let output = made.folder.path().join("out.data");
    let shown = perf::perf(&["annotate", "-f", "-i", text(&output), "--stdio", "fn_0"]);
    assert!(shown.contains("line 10 of the source"), "{shown}");
    let shown = perf::perf(&[
        "script",
        "-f",
        "-i",
        text(&output),
        "-G",
        "-F",
        "ip,sym,srcline,srccode",
    ]);
    assert!(shown.contains("line 10 of the source"), "{shown}");
    // again, over existing files; and in a shared directory
    let object = only_object(&made, &["--dwarf", "5"]);
    assert!(written.exists());
    let dwarf = run("llvm-dwarfdump", &["--debug-line", text(&object)]);
    assert!(dwarf.contains("version: 5"), "{dwarf}");
    assert!(dwarf.contains("line 30 of the source"), "{dwarf}");
    verify(&object);
    let shared = made.folder.path().join("shared");
    for _ in 0..2 {
        let more = ["--elf-dir", text(&shared)];
        inject_into(made.folder.path(), &made.input, &more);
        // The source, and the list of sources.
        assert_eq!(std::fs::read_dir(shared.join("sources")).unwrap().count(), 2);
    }
}

/// For any path and text, the file is in the directory of all sources, and the lines are valid.
#[test]
fn embedded_sources_may_be_hostile() {
    for (path, source) in [
        (&b"../../../etc/passwd"[..], &b"text"[..]),
        (b"/", b"text"),
        (b"a/..", b""),
        (b"src/binary.js", b"with a\0NUL"),
        (b"src/\xff\xfe.js", b"\xff\x1b[2J"),
    ] {
        let made = with_records(b"fn_0", |dump| {
            dump.record(827_346_261, 900, &[path, b"\0", source].concat());
            dump.debug_info(1000, REGION, path, 3);
        });
        for version in ["4", "5"] {
            let object = only_object(&made, &["--dwarf", version]);
            verify(&object);
            let sources = object.parent().unwrap().join("sources");
            let written = Path::new(&symbolizers::llvm(&object, &[0x40])[0][0].file).to_owned();
            assert!(written.starts_with(&sources), "{}", written.display());
            assert_eq!(std::fs::read(&written).unwrap(), source);
        }
        let left = std::fs::read_dir(made.folder.path()).unwrap().count();
        assert_eq!(left, 4, "a dump, a profile, the output and its objects");
    }
}

#[test]
fn paths_of_sources_follow_the_options() {
    let made = with_records(b"fn_0", |dump| {
        write_lines(dump, Layout::Lists, 1000, REGION, &model(0));
    });
    let files_with = |more: &[&str]| {
        let object = only_object(&made, more);
        let chain = symbolizers::llvm(&object, &[0x40 + 3 * u64::from(STRETCH)]).remove(0);
        chain.into_iter().map(|site| site.file).collect::<Vec<_>>()
    };
    assert_eq!(files_with(&[]), ["/lib/b.js", "src/a.js", "src/module_0.js"]);
    assert_eq!(
        files_with(&["--source-dir", "/home/me", "--path-map", "/lib=/usr/lib"]),
        ["/usr/lib/b.js", "/home/me/src/a.js", "/home/me/src/module_0.js"]
    );
    assert_eq!(
        files_with(&[
            "--path-map",
            "src/=/checkout",
            "--path-map",
            "src/a.js=/generated/a.js",
            "--path-map",
            "sr=x"
        ]),
        ["/lib/b.js", "/generated/a.js", "/checkout/module_0.js"]
    );
}

/// Names of V8's modules: perf uses only the part before the first colon.
#[test]
fn perf_finds_files_that_are_named_by_urls() {
    let source = scratch();
    let path = source.path().join("my file.mjs");
    std::fs::write(&path, "one\ntwo\nthe third line\n").unwrap();
    let url = format!("file://{}", text(&path).replace(' ', "%20"));
    for (name, place) in [(&url[..], "my file.mjs:3"), ("node:internal/util", "util:3")] {
        let made = with_records(b"fn_0", |dump| dump.debug_info(1000, REGION, name.as_bytes(), 3));
        let output = inject_into(made.folder.path(), &made.input, &[]);
        let shown = perf::perf(&["script", "-f", "-i", text(&output), "-G", "-F", "ip,sym,srcline"]);
        assert!(shown.contains(place), "{shown}");
        let shown = perf::perf(&["annotate", "-f", "-i", text(&output), "--stdio", "fn_0"]);
        assert_eq!(
            shown.contains("the third line"),
            name.starts_with("file:"),
            "{shown}"
        );
    }
}

#[test]
fn names_tell_where_functions_are_declared() {
    for (name, expected) in [
        ("JS:^eat /tmp/work.js:23:6", &["work.js", "23", "6"][..]),
        ("py::fib:/tmp/work.py", &["work.py"]),
    ] {
        let made = with_records(name.as_bytes(), |_| {});
        let object = only_object(&made, &[]);
        let dwarf = run("llvm-dwarfdump", &[text(&object)]);
        let declared: Vec<&str> = dwarf.lines().filter(|line| line.contains("DW_AT_decl")).collect();
        assert_eq!(declared.len(), expected.len(), "{dwarf}");
        for (line, expected) in declared.iter().zip(expected) {
            assert!(line.contains(expected), "{dwarf}");
        }
        verify(&object);
    }
}

#[test]
fn tiers_are_printed_on_request() {
    let folder = scratch();
    let output = folder.path().join("out.data");
    let said = inject(&capture::profile("node20"), &output, &["--tiers"]);
    assert!(
        said.contains("449 samples in 15 functions of tier TurboFan"),
        "{said}"
    );
    let leaves = perf::leaves(&output);
    assert!(!leaves.iter().any(|sample| sample.frames[0].contains("TurboFan")));
    inject(&capture::profile("node20"), &output, &["--tiers=symbols"]);
    let leaves = perf::leaves(&output);
    let tagged = leaves
        .iter()
        .filter(|sample| sample.frames[0].ends_with(" [TurboFan]"));
    assert!(tagged.count() > 300);
    // the record takes precedence over the name
    let made = with_records(b"JS:^f a.js:1:1", |dump| {
        dump.record(827_346_260, 999, b"\x03\0\0\0Warp\0\0\0\0");
    });
    let said = inject(&made.input, &made.folder.path().join("out.data"), &["--tiers"]);
    assert!(said.contains("1 sample in 1 function of tier Warp"), "{said}");
}

/// Invalid information is dropped and counted; the rest is kept.
#[test]
fn debug_information_that_leads_nowhere_is_dropped() {
    // a position that is its own caller, and one whose caller is missing
    let circle = with_records(b"fn_0", |dump| {
        let mut content = positions(ByteOrder::Little, REGION, &model(0));
        let count = content.len();
        assert!(count > 200);
        // the caller of the fourth position
        let first_position = 32 + 9 * 8;
        let at = first_position + 3 * 28;
        content[at..at + 4].copy_from_slice(&3u32.to_le_bytes());
        dump.record(827_346_260, 1000, &content);
    });
    let said = inject(&circle.input, &circle.folder.path().join("out.data"), &[]);
    assert!(has_code(&said, "JI026"), "{said}");
    verify(&only_object(&circle, &[]));
    // missing ranges, files and functions
    let wild = with_records(b"fn_0", |dump| {
        let content = lists(ByteOrder::Little, &model(0));
        for word in (32..content.len() / 4).map(|word| word * 4) {
            let mut damaged = content.clone();
            damaged[word..word + 4].copy_from_slice(&0x7fff_fff0u32.to_le_bytes());
            dump.record(827_346_259, 1000, &damaged);
            dump.load(1000, REGION, 1, b"other", &[0x90; 100]);
        }
    });
    let output = inject_into(wild.folder.path(), &wild.input, &["--all"]);
    for object in objects_of(&output) {
        verify(&object);
    }
}

/// LLVM's ORC writes all debug records of an object before all of its functions.
#[test]
fn inlined_calls_are_found_by_address_and_count_more_than_lines() {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&path), 500);
    let address = |number: u32| REGION + u64::from(number) * 0x200;
    for layout in [Layout::Positions, Layout::Lines] {
        for number in 0..3 {
            write_lines(&mut dump, layout, 1000, address(number), &model(number));
        }
    }
    for number in [2, 0, 1] {
        let name = format!("fn_{number}");
        dump.load(
            1001,
            address(number),
            number.into(),
            name.as_bytes(),
            &[0x90; 9 * STRETCH as usize],
        );
        profile.sample(PID, 2000 + u64::from(number), &[address(number)], None);
    }
    std::fs::write(&path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let said = inject(&input, &folder.path().join("out.data"), &[]);
    assert!(codes(&said).is_empty(), "{said}");
    for object in objects_of(&folder.path().join("out.data")) {
        let shown = symbolizers::llvm(&object, &[0x40 + 3 * u64::from(STRETCH)]);
        assert_eq!(shown[0], model(number_of(&object))[3]);
    }
}

/// Writes a dump of DEBUG_INFO records (`Err`) and LOAD records (`Ok`) of adjacent functions of 0x40 bytes;
/// returns the line at the start of each function, by index.
fn lines_by_pairing(records: &[Result<u32, u32>]) -> Vec<(u32, u32)> {
    let folder = scratch();
    let path = folder.path().join("jit-7.dump");
    let mut dump = DumpWriter::new(ByteOrder::Little, X86_64, PID);
    let mut profile = ProfileWriter::new(ByteOrder::Little);
    profile.mmap2(PID, 0x6000_0000, 4096, 0, text(&path), 500);
    let address = |number: u32| REGION + u64::from(number) * 0x40;
    for (time, record) in (1000..).zip(records) {
        match *record {
            Err(number) => dump.debug_info(time, address(number), b"/a/x.c", 100 + number),
            Ok(number) => dump.load(
                time,
                address(number),
                number.into(),
                format!("f_{number}").as_bytes(),
                &[0x90; 0x40],
            ),
        }
    }
    profile.sample(PID, 2000, &[REGION], None);
    std::fs::write(&path, dump.bytes).unwrap();
    let input = folder.path().join("perf.data");
    std::fs::write(&input, profile.finish()).unwrap();
    let output = inject_into(folder.path(), &input, &["--all"]);
    let line = |object: &PathBuf| (number_of(object), symbolizers::gnu(object, &[0x40])[0][0].line);
    let mut lines: Vec<(u32, u32)> = objects_of(&output).iter().map(line).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn lines_go_to_the_function_of_their_address() {
    // the first function has no lines; those of the second precede both functions
    assert_eq!(lines_by_pairing(&[Err(1), Ok(0), Ok(1)]), [(0, 0), (1, 101)]);
    // two threads write at the same time
    let interleaved = [Err(0), Err(1), Ok(0), Err(2), Ok(1), Ok(2)];
    assert_eq!(lines_by_pairing(&interleaved), [(0, 100), (1, 101), (2, 102)]);
    // an address is reused much later by a function without lines
    let again = [Err(0), Ok(1), Err(2), Ok(2), Err(3), Ok(3), Ok(0)];
    assert_eq!(lines_by_pairing(&again)[0], (0, 0));
}

/// Like perf inject, ignores the address in the record.
#[test]
fn lines_of_an_address_that_is_never_loaded_go_to_the_next_function() {
    let made = with_records(b"fn_0", |dump| {
        let mut content = Vec::new();
        for word in [0x1234, 1, REGION + 4] {
            dump.endian.write_u64(&mut content, word);
        }
        dump.endian.write_u32(&mut content, 42);
        dump.endian.write_u32(&mut content, 0);
        content.extend_from_slice(b"/a/x.c\0");
        dump.record(2, 999, &content);
    });
    let said = inject(&made.input, &made.folder.path().join("out.data"), &[]);
    assert!(codes(&said).is_empty(), "{said}");
    let shown = symbolizers::gnu(&only_object(&made, &[]), &[0x44]);
    assert_eq!(shown[0], [Site::new("fn_0", "/a/x.c", 42)]);
}

#[test]
fn what_belongs_to_a_damaged_load_goes_to_no_other() {
    let made = with_records(b"innocent", |dump| {
        dump.record(827_346_259, 900, &lists(ByteOrder::Little, &model(0)));
        dump.record(827_346_260, 900, b"Lost\0");
        let mut load = DumpWriter::new(ByteOrder::Little, X86_64, PID);
        load.bytes.clear();
        load.load(901, REGION + 0x1000, 9, b"lost", &[0x90; 16]);
        // a code size that exceeds the record
        load.bytes[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        dump.bytes.extend_from_slice(&load.bytes);
    });
    let output = made.folder.path().join("out.data");
    let (said, summary) = inject_with_summary(&made.input, &output, &["--tiers"]);
    for code in ["JI014", "JI017", "JI021"] {
        let skipped = only(&summary, code);
        assert_eq!(skipped["count"], 1, "{skipped}");
        assert!(skipped["offset"].is_u64(), "{skipped}");
    }
    assert!(
        said.contains("1 sample in 1 function of tier not known"),
        "{said}"
    );
    assert_eq!(symbolizers::gnu(&only_object(&made, &[]), &[0x40])[0][0].line, 0);
}

/// Whatever the records contain, objects are written, and their content is valid.
#[test]
fn damage_of_any_kind_leaves_valid_lines() {
    let mut random = Random::new(2);
    for layout in LAYOUTS {
        let made = make(layout, ByteOrder::Little, X86_64, 3);
        let path = made.folder.path().join("jit-7.dump");
        let original = std::fs::read(&path).unwrap();
        let mut written = 0;
        for round in 0..200 {
            let mut damaged = original.clone();
            damage(&mut damaged, &mut random);
            std::fs::write(&path, damaged).unwrap();
            let options = InjectOptions {
                all: true,
                ..InjectOptions::new(&made.input, made.folder.path().join("out.data"))
            };
            let is_written = jitinject::inject(&options, &mut ()).is_ok();
            if is_written && round % 10 == 0 && made.folder.path().join("out.data.elf").exists() {
                for object in objects_of(&options.output) {
                    let said = report("llvm-dwarfdump", &["--verify", text(&object)]);
                    assert!(said.contains("No errors."), "{layout:?}, {round}: {said}");
                    written += 1;
                }
            }
        }
        assert!(written > 10, "{written}");
    }
}
