//! The environment and options that make runtimes log their code.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::runtimes::Runtime;

/// How a value is combined with one that the variable already has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueMode {
    /// Appended after a separator.
    Append(u8),
    /// Only used if the variable is not set.
    IfUnset,
}

/// A variable of a runtime. `DIR` in the value is the folder of the dumps.
struct Setting {
    runtime: Runtime,
    name: &'static str,
    value: &'static str,
    mode: ValueMode,
}

impl Setting {
    /// A variable that is set unless the user has set it.
    const fn unless_set(runtime: Runtime, name: &'static str, value: &'static str) -> Self {
        Self {
            runtime,
            name,
            value,
            mode: ValueMode::IfUnset,
        }
    }

    /// A variable with a list: the value comes after the user's own and `separator`.
    const fn appended(runtime: Runtime, name: &'static str, separator: u8, value: &'static str) -> Self {
        Self {
            runtime,
            name,
            value,
            mode: ValueMode::Append(separator),
        }
    }
}

/// Stands for the folder of the dumps in the value of a [`Setting`].
const FOLDER: &str = "DIR";

/// Variables of all runtimes that are started without options. [`java_options`] has those of Java.
const SETTINGS: &[Setting] = &[
    Setting::appended(
        Runtime::Node,
        "NODE_OPTIONS",
        b' ',
        "--perf-prof --interpreted-frames-native-stack",
    ),
    Setting::appended(
        Runtime::Deno,
        "DENO_V8_FLAGS",
        b',',
        "--perf-prof,--interpreted-frames-native-stack,--perf-prof-path=DIR",
    ),
    Setting::unless_set(Runtime::Bun, "BUN_JSC_useJITDump", "1"),
    Setting::unless_set(Runtime::Bun, "BUN_JSC_jitDumpDirectory", "DIR"),
    Setting::unless_set(Runtime::JavaScriptCore, "JSC_useJITDump", "1"),
    Setting::unless_set(Runtime::JavaScriptCore, "JSC_jitDumpDirectory", "DIR"),
    Setting::unless_set(Runtime::SpiderMonkey, "IONPERF", "src"),
    Setting::unless_set(Runtime::SpiderMonkey, "PERF_SPEW_DIR", "DIR"),
    // CPython 3.13 prefers PYTHON_PERF_JIT_SUPPORT, which 3.12 does not have.
    Setting::unless_set(Runtime::Python, "PYTHONPERFSUPPORT", "1"),
    Setting::unless_set(Runtime::Python, "PYTHON_PERF_JIT_SUPPORT", "1"),
    Setting::unless_set(Runtime::Numba, "NUMBA_ENABLE_PROFILING", "1"),
    Setting::appended(Runtime::Php, "PHP_INI_SCAN_DIR", b':', "DIR/php"),
    Setting::appended(Runtime::Erlang, "ERL_FLAGS", b' ', "+JPperf true"),
    Setting::unless_set(Runtime::DotNet, "DOTNET_PerfMapEnabled", "1"),
    // Name before .NET 6; later versions prefer DOTNET_PerfMapEnabled.
    Setting::unless_set(Runtime::DotNet, "COMPlus_PerfMapEnabled", "1"),
    Setting::unless_set(Runtime::DotNet, "DOTNET_PerfMapJitDumpPath", "DIR"),
    Setting::unless_set(Runtime::DotNet, "DOTNET_EnableWriteXorExecute", "0"),
    Setting::unless_set(Runtime::DotNet, "DOTNET_PerfMapStubGranularity", "2"),
    Setting::appended(Runtime::Mono, "MONO_ENV_OPTIONS", b' ', "--jitmap"),
    // With frame pointers.
    Setting::appended(Runtime::Mono, "MONO_DEBUG", b',', "disable_omit_fp"),
    Setting::appended(Runtime::Ruby, RUBY, b' ', YJIT),
    Setting::unless_set(Runtime::Julia, "ENABLE_JITPROFILING", "1"),
    Setting::unless_set(Runtime::MoarVm, "MVM_JIT_PERF_DUMP", "1"),
    // Before 2026.
    Setting::unless_set(Runtime::MoarVm, "MVM_JIT_PERF_MAP", "1"),
    Setting::unless_set(Runtime::Qemu, "QEMU_JITDUMP", "1"),
    Setting::unless_set(Runtime::Root, "CLING_PROFILE", "1"),
    Setting::unless_set(Runtime::OneDnn, "ONEDNN_JIT_PROFILE", "6"),
];

/// Java's variable with options.
const JAVA: &str = "JAVA_TOOL_OPTIONS";

/// Ruby's variable with options.
pub const RUBY: &str = "RUBYOPT";

/// Ruby's options.
const YJIT: &str = "--yjit --yjit-perf";

/// Ruby's options if it runs with its other compiler.
pub const ZJIT: &str = "--zjit --zjit-perf";

/// Folder for PHP's settings, in that of the dumps.
pub const PHP_FOLDER: &str = "php";

/// Name of the file with these settings.
pub const PHP_FILE: &str = "jitinject.ini";

/// Settings of PHP, as options would be.
pub const PHP_SETTINGS: &str = "\
opcache.enable_cli=1
opcache.jit=tracing
opcache.jit_buffer_size=64M
opcache.jit_debug=32
opcache.file_update_protection=0
";

/// Whether the variables of a runtime are set. `runtimes` and `has_others` are those of an [`EnvironmentRequest`].
pub fn is_set_for(runtime: Runtime, runtimes: &[Runtime], has_others: bool) -> bool {
    runtimes.contains(&runtime) || (has_others && runtime.description().is_harmless)
}

/// Whether variables of a runtime are among those that are set.
pub fn has_variables(runtime: Runtime, variables: &[(&'static str, OsString)]) -> bool {
    let own = SETTINGS.iter().filter(|setting| setting.runtime == runtime);
    let java = (runtime == Runtime::Java).then_some(JAVA);
    let mut names = own.map(|setting| setting.name).chain(java);
    names.any(|name| variables.iter().any(|&(set, _)| set == name))
}

/// What decides the environment.
#[derive(Debug)]
pub struct EnvironmentRequest<'a> {
    /// Folder of the dumps.
    pub dumps: &'a Path,
    /// The command.
    pub command: &'a [OsString],
    /// Runtimes that the program is known to start.
    pub runtimes: &'a [Runtime],
    /// Whether to include other runtimes, which the program may start.
    pub has_others: bool,
    /// Runtimes to leave out.
    pub without: &'a [Runtime],
    /// Whether stacks are unwound with tables.
    pub has_stack_copies: bool,
    /// perf's agent for Java, if there is one.
    pub java_agent: Option<&'a Path>,
}

/// Returns the variables to set, sorted by name. `current` returns the present value of one.
pub fn variables(
    request: &EnvironmentRequest<'_>,
    current: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let is_wanted = |runtime: Runtime| {
        !request.without.contains(&runtime) && is_set_for(runtime, request.runtimes, request.has_others)
    };
    let mut variables = Vec::new();
    let mut add = |name: &'static str, value: OsString, mode| {
        if let Some(value) = combined_value(current(name), value, mode, name) {
            variables.push((name, value));
        }
    };
    for setting in SETTINGS.iter().filter(|setting| is_wanted(setting.runtime)) {
        let mut text = match setting.name {
            RUBY => ruby_options(request.command, current(RUBY).as_deref()).to_owned(),
            _ => setting.value.to_owned(),
        };
        if setting.runtime == Runtime::Node && request.has_stack_copies {
            text.push_str(" --perf-prof-unwinding-info");
        }
        add(setting.name, value_for_folder(&text, request.dumps), setting.mode);
    }
    if is_wanted(Runtime::Java) {
        add(JAVA, java_options(request.java_agent), ValueMode::Append(b' '));
    }
    // LLVM, perf's agent for Java, oneDNN and others.
    add(
        "JITDUMPDIR",
        request.dumps.as_os_str().to_owned(),
        ValueMode::IfUnset,
    );
    variables.sort_unstable();
    variables
}

/// Returns runtimes that cannot be told a folder, because its path has the separator of a list in their variable.
pub fn cannot_name(folder: &Path) -> impl Iterator<Item = (Runtime, u8)> {
    SETTINGS.iter().filter_map(move |setting| match setting.mode {
        ValueMode::Append(separator) if setting.value.contains(FOLDER) => {
            let is_in_path = folder.as_os_str().as_bytes().contains(&separator);
            is_in_path.then_some((setting.runtime, separator))
        }
        _ => None,
    })
}

/// Whether a command and Ruby's options choose a compiler, which excludes the other one.
fn has_compiler(compiler: &[u8], command: &[OsString], options: Option<&OsStr>) -> bool {
    let of_command = command.iter().any(|word| word.as_bytes().starts_with(compiler));
    of_command || options.is_some_and(|options| memchr::memmem::find(options.as_bytes(), compiler).is_some())
}

/// Returns Ruby's options for the compiler that a command and the present value of its variable choose.
pub fn ruby_options(command: &[OsString], current: Option<&OsStr>) -> &'static str {
    if has_compiler(b"--zjit", command, current) {
        ZJIT
    } else {
        YJIT
    }
}

/// Whether Ruby compiles code without this program, too.
pub fn has_ruby_compiler(command: &[OsString]) -> bool {
    let options = std::env::var_os(RUBY);
    [&b"--yjit"[..], b"--zjit", b"--jit"]
        .iter()
        .any(|compiler| has_compiler(compiler, command, options.as_deref()))
}

/// Returns the new value of a variable; `None` if it stays as it is.
fn combined_value(
    current: Option<OsString>,
    value: OsString,
    mode: ValueMode,
    name: &str,
) -> Option<OsString> {
    let ValueMode::Append(separator) = mode else {
        return current.is_none().then_some(value);
    };
    // Without anything before the colon, PHP also reads its usual folders.
    let current = match current {
        None if name == "PHP_INI_SCAN_DIR" => Some(OsString::new()),
        Some(current) if current.is_empty() => None,
        current => current,
    };
    let Some(current) = current else {
        return Some(value);
    };
    let mut joined = current.into_vec();
    joined.push(separator);
    joined.extend_from_slice(value.as_bytes());
    Some(OsString::from_vec(joined))
}

/// Returns the value of a [`Setting`] for dumps in `folder`.
fn value_for_folder(text: &str, folder: &Path) -> OsString {
    let mut value = OsString::new();
    for (at, part) in text.split(FOLDER).enumerate() {
        if at > 0 {
            value.push(folder);
        }
        value.push(part);
    }
    value
}

/// Returns the options of Java. Versions before 17 ignore those that they do not know.
fn java_options(agent: Option<&Path>) -> OsString {
    let mut options = OsString::from("-XX:+PreserveFramePointer ");
    match agent {
        Some(agent) => {
            let has_space = agent.as_os_str().as_bytes().iter().any(u8::is_ascii_whitespace);
            let quote = if has_space { "\"" } else { "" };
            for part in [
                quote.as_ref(),
                "-agentpath:".as_ref(),
                agent.as_os_str(),
                quote.as_ref(),
            ] {
                options.push::<&OsStr>(part);
            }
        }
        None => options
            .push("-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"),
    }
    options
}

/// Returns perf's agent for Java, if a package has installed it.
pub fn find_java_agent() -> Option<PathBuf> {
    const FOLDERS: [&str; 6] = [
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/perf",
        "/usr/local/lib64",
        "/usr/local/lib",
        "/usr/lib/linux-tools",
    ];
    const NAME: &str = "libperf-jvmti.so";
    const KERNEL_TOOLS: &[u8] = b"linux-tools";
    // Ubuntu has a folder for each kernel.
    let entries = ["/usr/lib", "/usr/lib/linux-tools"]
        .into_iter()
        .flat_map(std::fs::read_dir)
        .flatten();
    let is_of_kernel = |path: &PathBuf| {
        let mut parts = path.as_os_str().as_bytes().windows(KERNEL_TOOLS.len());
        parts.any(|part| part == KERNEL_TOOLS)
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut of_kernels: Vec<PathBuf> = paths.filter(is_of_kernel).collect();
    of_kernels.sort();
    let home = std::env::home_dir().map(|home| home.join("lib64"));
    let folders = FOLDERS.into_iter().map(PathBuf::from);
    let mut files = folders
        .chain(of_kernels.into_iter().rev())
        .chain(home)
        .map(|folder| folder.join(NAME));
    files.find(|file| file.is_file())
}

/// Options to add to a command, because the runtime has no variable for them.
#[derive(PartialEq, Eq, Debug)]
pub struct AddedOption {
    /// Index in the command at which it is inserted.
    pub index: usize,
    /// The option.
    pub text: &'static str,
}

/// Returns the option to insert into the command of a runtime, whose program is at `index`; `None` if it needs none, or has
/// one.
pub fn added_option(runtime: Runtime, command: &[OsString], index: usize) -> Option<AddedOption> {
    let (text, known, has_commands) = match runtime {
        Runtime::Lli => ("-jit-kind=mcjit", "jit-kind", false),
        Runtime::Wasmtime => ("--profile=jitdump", "profile", true),
        Runtime::Wasmer => ("--profiler=perfmap", "profiler", true),
        Runtime::Hhvm => ("-vEval.PerfJitDump=true", "vEval.PerfJitDump", false),
        Runtime::Dart => ("--generate_perf_jitdump", "generate", false),
        _ => return None,
    };
    let has_option = |word: &OsString| {
        let name = word.as_bytes();
        let name = name
            .strip_prefix(b"-")
            .map(|rest| rest.strip_prefix(b"-").unwrap_or(rest));
        name.is_some_and(|name| name.starts_with(known.as_bytes()))
    };
    if command.iter().skip(index).any(has_option) {
        return None;
    }
    let is_command = |word: &OsString| word == OsStr::new("run") || word == OsStr::new("serve");
    let after_command = has_commands && command.get(index + 1).is_some_and(is_command);
    Some(AddedOption {
        index: if after_command { index + 2 } else { index + 1 },
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::Description;

    fn request<'a>(runtimes: &'a [Runtime], has_others: bool) -> EnvironmentRequest<'a> {
        EnvironmentRequest {
            dumps: Path::new("/r/dumps"),
            command: &[],
            runtimes,
            has_others,
            without: &[],
            has_stack_copies: false,
            java_agent: None,
        }
    }

    fn value_of(request: &EnvironmentRequest<'_>, name: &str, current: Option<&str>) -> Option<String> {
        let variables = variables(request, |other| {
            current.filter(|_| other == name).map(OsString::from)
        });
        let found = variables.into_iter().find(|(other, _)| *other == name)?;
        Some(found.1.into_string().unwrap())
    }

    #[test]
    fn values_are_appended_to_those_that_are_set() {
        let all = request(&[], true);
        let value = |name: &str, current| value_of(&all, name, current);
        let node = "--perf-prof --interpreted-frames-native-stack";
        assert_eq!(value("NODE_OPTIONS", None).unwrap(), node);
        assert_eq!(value("NODE_OPTIONS", Some("")).unwrap(), node);
        assert_eq!(value("NODE_OPTIONS", Some("--a")).unwrap(), format!("--a {node}"));
        let deno = "--perf-prof,--interpreted-frames-native-stack,--perf-prof-path=/r/dumps";
        assert_eq!(
            value("DENO_V8_FLAGS", Some("--b")).unwrap(),
            format!("--b,{deno}")
        );
        assert_eq!(value("PHP_INI_SCAN_DIR", None).unwrap(), ":/r/dumps/php");
        assert_eq!(value("PHP_INI_SCAN_DIR", Some("/e")).unwrap(), "/e:/r/dumps/php");
        assert_eq!(value("PHP_INI_SCAN_DIR", Some("")).unwrap(), "/r/dumps/php");
        assert_eq!(value("MONO_DEBUG", Some("gdb")).unwrap(), "gdb,disable_omit_fp");
        assert_eq!(value("JITDUMPDIR", None).unwrap(), "/r/dumps");
        assert_eq!(value("JITDUMPDIR", Some("/mine")), None);
        assert_eq!(value("DOTNET_PerfMapEnabled", Some("3")), None);
    }

    #[test]
    fn variables_that_may_harm_are_for_their_runtime_only() {
        for (name, runtime) in [
            ("JAVA_TOOL_OPTIONS", Runtime::Java),
            ("ERL_FLAGS", Runtime::Erlang),
            ("RUBYOPT", Runtime::Ruby),
            ("NUMBA_ENABLE_PROFILING", Runtime::Numba),
        ] {
            assert_eq!(value_of(&request(&[], true), name, None), None);
            assert!(value_of(&request(&[runtime], true), name, None).is_some());
        }
        let mut java = request(&[Runtime::Java], false);
        assert!(
            value_of(&java, "JAVA_TOOL_OPTIONS", None)
                .unwrap()
                .contains("DumpPerfMapAtExit")
        );
        assert_eq!(value_of(&java, "NODE_OPTIONS", None), None);
        java.java_agent = Some(Path::new("/my tools/libperf-jvmti.so"));
        let options = value_of(&java, "JAVA_TOOL_OPTIONS", Some("-Xmx1g")).unwrap();
        assert_eq!(
            options,
            r#"-Xmx1g -XX:+PreserveFramePointer "-agentpath:/my tools/libperf-jvmti.so""#
        );
    }

    #[test]
    fn runtimes_with_variables_can_be_named() {
        for setting in SETTINGS {
            assert!(setting.runtime.description().id.is_some(), "{}", setting.name);
        }
    }

    #[test]
    fn folders_with_the_separator_of_a_list_cannot_be_named_in_it() {
        let without = |folder: &str| -> Vec<_> { cannot_name(Path::new(folder)).collect() };
        assert_eq!(without("/r/a b/dumps"), []);
        assert_eq!(without("/r/a:b/dumps"), [(Runtime::Php, b':')]);
        assert_eq!(without("/r/a,b/dumps"), [(Runtime::Deno, b',')]);
    }

    #[test]
    fn ruby_keeps_the_compiler_that_was_chosen() {
        let mut ruby = request(&[Runtime::Ruby], false);
        assert_eq!(value_of(&ruby, RUBY, None).unwrap(), YJIT);
        assert_eq!(
            value_of(&ruby, RUBY, Some("--zjit")).unwrap(),
            format!("--zjit {ZJIT}")
        );
        let command = ["ruby", "--zjit", "a.rb"].map(OsString::from);
        ruby.command = &command;
        assert_eq!(value_of(&ruby, RUBY, None).unwrap(), ZJIT);
    }

    #[test]
    fn interpreted_functions_of_v8_have_names() {
        let settings = SETTINGS.iter().map(|setting| setting.value);
        let advice = Description::all().map(|runtime| runtime.how);
        let of_v8 = settings.chain(advice).filter(|text| text.contains("--perf-prof"));
        let texts: Vec<&str> = of_v8.collect();
        let are_named = |text: &&str| text.contains("--interpreted-frames-native-stack");
        assert!(texts.len() == 5 && texts.iter().all(are_named), "{texts:?}");
    }

    #[test]
    fn v8_writes_unwinding_tables_where_stacks_are_copied() {
        let mut node = request(&[Runtime::Node], false);
        node.has_stack_copies = true;
        let options = value_of(&node, "NODE_OPTIONS", None).unwrap();
        assert!(options.ends_with(" --perf-prof-unwinding-info"), "{options}");
        node.without = &[Runtime::Node];
        assert_eq!(value_of(&node, "NODE_OPTIONS", None), None);
    }

    #[test]
    fn options_without_a_variable_are_inserted_once() {
        let added = |runtime, line: &str, index| {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            added_option(runtime, &command, index).map(|added| (added.index, added.text))
        };
        assert_eq!(added(Runtime::Lli, "lli app.ll", 0), Some((1, "-jit-kind=mcjit")));
        assert_eq!(added(Runtime::Lli, "lli --jit-kind=orc app.ll", 0), None);
        let wasmtime = "--profile=jitdump";
        assert_eq!(
            added(Runtime::Wasmtime, "wasmtime run a.wasm", 0),
            Some((2, wasmtime))
        );
        assert_eq!(
            added(Runtime::Wasmtime, "wasmtime a.wasm", 0),
            Some((1, wasmtime))
        );
        assert_eq!(
            added(Runtime::Wasmtime, "env A=1 wasmtime a.wasm", 2),
            Some((3, wasmtime))
        );
        assert_eq!(
            added(Runtime::Wasmtime, "wasmtime --profile=perfmap a.wasm", 0),
            None
        );
        assert_eq!(
            added(Runtime::Lli, "lli-14 app.ll", 0),
            Some((1, "-jit-kind=mcjit"))
        );
        assert_eq!(added(Runtime::Node, "node app.js", 0), None);
        let perfmap = "--profiler=perfmap";
        assert_eq!(added(Runtime::Wasmer, "wasmer run a.wasm", 0), Some((2, perfmap)));
        let jitdump = "--generate_perf_jitdump";
        assert_eq!(added(Runtime::Dart, "dart run a.dart", 0), Some((1, jitdump)));
        assert_eq!(
            added(Runtime::Dart, "dart --generate-perf-jitdump a.dart", 0),
            None
        );
        let hhvm = "-vEval.PerfJitDump=true";
        assert_eq!(added(Runtime::Hhvm, "hhvm a.hack", 0), Some((1, hhvm)));
        assert_eq!(added(Runtime::Hhvm, "hhvm -vEval.PerfJitDump=0 a.hack", 0), None);
    }
}
