//! Whether PHP runs with its JIT compiler, and whether a recording may switch it on.

use std::path::Path;
use std::time::Duration;

use super::safe_program::SafeProgram;
use super::short_command;

/// What the configuration of a PHP says of its JIT compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhpCompiler {
    /// It is on.
    On,
    /// Opcache, which it is part of, is switched off explicitly.
    SwitchedOff,
    /// It is off, or the program could not be asked.
    Off,
}

/// Code that exits with [`ON`] or [`SWITCHED_OFF`]. A setting that no file has is `false`; one that is off is empty or 0.
const SCRIPT: &str = "\
foreach (['opcache.enable', 'opcache.enable_cli'] as $name) {
    $value = get_cfg_var($name);
    if ($value !== false && !$value) exit(11);
}
$status = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
exit(($status['jit']['on'] ?? false) ? 10 : 0);
";

/// Exit status of [`SCRIPT`] if the compiler is on.
const ON: i32 = 10;

/// Exit status of [`SCRIPT`] if opcache is switched off.
const SWITCHED_OFF: i32 = 11;

/// Time that PHP has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl PhpCompiler {
    /// Asks a program, unless the user must not run it.
    pub fn of(program: &Path) -> Self {
        let Some(program) = SafeProgram::started(program) else {
            return Self::Off;
        };
        let mut command = program.command();
        command.args(["-r", SCRIPT]);
        let printed = short_command::run(command, false, PATIENCE, &mut || false);
        match printed.ok().and_then(|printed| printed.status.code()) {
            Some(ON) => Self::On,
            Some(SWITCHED_OFF) => Self::SwitchedOff,
            _ => Self::Off,
        }
    }
}
