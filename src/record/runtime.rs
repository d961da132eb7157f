//! Which runtime a command starts, by the name of its program, its links and its first line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::bytes::base_name;
use crate::load::is_version_of;

/// A runtime with a JIT compiler that can be made to log its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runtime {
    /// Node.js.
    Node,
    /// Deno.
    Deno,
    /// Bun.
    Bun,
    /// JavaScriptCore.
    JavaScriptCore,
    /// SpiderMonkey.
    SpiderMonkey,
    /// CPython.
    Python,
    /// Numba.
    Numba,
    /// PHP.
    Php,
    /// Erlang/OTP.
    Erlang,
    /// Java.
    Java,
    /// .NET.
    DotNet,
    /// Mono.
    Mono,
    /// Ruby.
    Ruby,
    /// Julia.
    Julia,
    /// MoarVM.
    MoarVm,
    /// LLVM's lli.
    Lli,
    /// Wasmtime.
    Wasmtime,
    /// QEMU in user mode.
    Qemu,
    /// ROOT.
    Root,
    /// oneDNN.
    OneDnn,
}

/// How a runtime is recognized.
struct Description {
    runtime: Runtime,
    /// Value of `--runtime`.
    id: &'static str,
    /// Name in messages.
    name: &'static str,
    /// Beginnings of the names of its programs. A version may follow, but no other word.
    programs: &'static [&'static str],
    /// Names of programs that start it.
    launchers: &'static [&'static str],
}

const DESCRIPTIONS: [Description; 20] = [
    Description {
        runtime: Runtime::Node,
        id: "node",
        name: "Node.js",
        programs: &["node", "nodejs"],
        launchers: &["npm", "npx", "yarn", "pnpm", "corepack", "tsx", "ts-node"],
    },
    Description {
        runtime: Runtime::Deno,
        id: "deno",
        name: "Deno",
        programs: &["deno"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::Bun,
        id: "bun",
        name: "Bun",
        programs: &["bun", "bunx"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::JavaScriptCore,
        id: "jsc",
        name: "JavaScriptCore",
        programs: &["jsc"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::SpiderMonkey,
        id: "spidermonkey",
        name: "SpiderMonkey",
        programs: &["firefox", "js"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::Python,
        id: "python",
        name: "CPython",
        programs: &["python"],
        launchers: &["pytest", "py.test", "tox", "nox", "uv", "poetry", "pipenv"],
    },
    Description {
        runtime: Runtime::Numba,
        id: "numba",
        name: "Numba",
        programs: &["numba"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::Php,
        id: "php",
        name: "PHP",
        programs: &["php"],
        launchers: &["composer", "phpunit"],
    },
    Description {
        runtime: Runtime::Erlang,
        id: "erlang",
        name: "Erlang/OTP",
        programs: &["erl", "beam"],
        launchers: &["escript", "erlc", "elixir", "iex", "mix", "rebar3", "gleam"],
    },
    Description {
        runtime: Runtime::Java,
        id: "java",
        name: "Java",
        programs: &["java"],
        launchers: &[
            "gradle", "gradlew", "mvn", "mvnw", "ant", "sbt", "scala", "kotlin", "groovy", "clojure", "clj",
            "lein", "jshell",
        ],
    },
    Description {
        runtime: Runtime::DotNet,
        id: "dotnet",
        name: ".NET",
        programs: &["dotnet"],
        launchers: &["pwsh"],
    },
    Description {
        runtime: Runtime::Mono,
        id: "mono",
        name: "Mono",
        programs: &["mono"],
        launchers: &["mcs", "csharp"],
    },
    Description {
        runtime: Runtime::Ruby,
        id: "ruby",
        name: "Ruby",
        programs: &["ruby"],
        launchers: &["bundle", "rake", "rails", "rspec"],
    },
    Description {
        runtime: Runtime::Julia,
        id: "julia",
        name: "Julia",
        programs: &["julia"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::MoarVm,
        id: "moarvm",
        name: "MoarVM",
        programs: &["moar"],
        launchers: &["raku", "rakudo", "perl6"],
    },
    Description {
        runtime: Runtime::Lli,
        id: "lli",
        name: "LLVM",
        programs: &["lli"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::Wasmtime,
        id: "wasmtime",
        name: "Wasmtime",
        programs: &["wasmtime"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::Qemu,
        id: "qemu",
        name: "QEMU",
        programs: &["qemu"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::Root,
        id: "root",
        name: "ROOT",
        programs: &["root", "root.exe", "cling"],
        launchers: &[],
    },
    Description {
        runtime: Runtime::OneDnn,
        id: "onednn",
        name: "oneDNN",
        programs: &["benchdnn"],
        launchers: &[],
    },
];

impl Runtime {
    /// Returns the names of all runtimes, as [`Runtime::from_id`] takes them.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        DESCRIPTIONS.iter().map(|description| description.id)
    }

    /// Returns the runtime with a name such as `node`.
    pub fn from_id(id: &str) -> Option<Self> {
        let mut descriptions = DESCRIPTIONS.iter();
        descriptions
            .find(|description| description.id == id)
            .map(|description| description.runtime)
    }

    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        let mut descriptions = DESCRIPTIONS.iter();
        let found = descriptions.find(|description| description.runtime == self);
        found.map_or("", |description| description.name)
    }

    /// Returns the runtime that a program of this base name is, or starts.
    pub fn of_program(name: &[u8]) -> Option<Self> {
        let has = |description: &&Description| {
            description
                .programs
                .iter()
                .any(|program| is_version_of(name, program))
                || description
                    .launchers
                    .iter()
                    .any(|launcher| launcher.as_bytes() == name)
        };
        let found = DESCRIPTIONS.iter().find(has);
        found.map(|description| description.runtime)
    }

    /// Returns the runtime of a running process.
    pub fn of_process(pid: u32) -> Option<Self> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Self::of_program(base_name(program.as_os_str().as_bytes()))
    }
}

/// The program in a command.
#[derive(PartialEq, Eq, Debug)]
pub struct Program {
    /// Its index in the command, which is not 0 if `env` starts it.
    pub index: usize,
    /// The runtime that it is or starts, if that is known.
    pub runtime: Option<Runtime>,
}

/// Returns the program that a command starts. `search_path` is the value of `PATH`.
pub fn program_of(command: &[OsString], search_path: &OsStr) -> Program {
    let mut index = 0;
    if command
        .first()
        .is_some_and(|word| base_name(word.as_bytes()) == b"env")
    {
        let words = command.iter().skip(1);
        index = 1 + words.take_while(|word| word.as_bytes().contains(&b'=')).count();
    }
    let Some(name) = command.get(index) else {
        return Program {
            index: 0,
            runtime: None,
        };
    };
    let path = find(name, search_path);
    let by_name = Runtime::of_program(base_name(name.as_bytes()));
    let by_link = || {
        let target = path.as_ref()?.canonicalize().ok()?;
        Runtime::of_program(base_name(target.as_os_str().as_bytes()))
    };
    let by_first_line = || Runtime::of_program(&interpreter(path.as_ref()?)?);
    Program {
        index,
        runtime: by_name.or_else(by_link).or_else(by_first_line),
    }
}

/// Returns the path of a program; `None` if there is none that can be executed.
pub fn find(name: &OsStr, search_path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    std::env::split_paths(search_path)
        .map(|folder| folder.join(name))
        .find(is_program)
}

/// Returns the base name of the interpreter in the first line of a script.
fn interpreter(path: &Path) -> Option<Vec<u8>> {
    /// The kernel reads no more of the line.
    const MAX_LINE: u64 = 256;
    let mut start = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_LINE)
        .read_to_end(&mut start)
        .ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let mut word = words.next()?;
    if base_name(word) == b"env" {
        word = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    }
    Some(base_name(word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn programs_and_launchers_are_recognized_by_name() {
        for (name, expected) in [
            ("node", Some(Runtime::Node)),
            ("node20", Some(Runtime::Node)),
            ("nodeconf", None),
            ("npm", Some(Runtime::Node)),
            ("python3.13", Some(Runtime::Python)),
            ("pytest", Some(Runtime::Python)),
            ("php8.2", Some(Runtime::Php)),
            ("mix", Some(Runtime::Erlang)),
            ("gradlew", Some(Runtime::Java)),
            ("javac", None),
            ("mono-sgen", Some(Runtime::Mono)),
            ("lli-14", Some(Runtime::Lli)),
            ("qemu-x86_64", Some(Runtime::Qemu)),
            ("sh", None),
            ("make", None),
        ] {
            assert_eq!(Runtime::of_program(name.as_bytes()), expected, "{name}");
        }
        for id in Runtime::ids() {
            assert!(!Runtime::from_id(id).unwrap().name().is_empty());
        }
    }

    #[test]
    fn links_scripts_and_env_lead_to_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let write = |name: &str, text: &str| {
            fs::write(path.join(name), text).unwrap();
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("node", "\x7fELF");
        symlink("node", path.join("engine")).unwrap();
        write("tool", "#!/usr/bin/env -S node --no-warnings\n");
        write("serve", "#!/usr/bin/python3 -u\n");
        write("run", "#!/bin/sh\nnode app.js\n");
        let found = |line: &str| {
            let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let program = program_of(&command, path.as_os_str());
            (program.index, program.runtime)
        };
        assert_eq!(found("node app.js"), (0, Some(Runtime::Node)));
        assert_eq!(found("engine app.js"), (0, Some(Runtime::Node)));
        assert_eq!(found("tool"), (0, Some(Runtime::Node)));
        assert_eq!(found("serve"), (0, Some(Runtime::Python)));
        assert_eq!(found("run"), (0, None));
        assert_eq!(found("env A=1 B=2 node app.js"), (3, Some(Runtime::Node)));
        assert_eq!(find(OsStr::new("absent"), path.as_os_str()), None);
    }
}
