//! The profile in a summary: where all samples were taken, and how the profile was recorded.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::diagnostics::Diagnostic;
use crate::results::summary::event_counts::EventCounts;

/// All samples of a profile by function, and how it was recorded.
///
/// [`EventCounts`] are in the order of [`ProfileSummary::events`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProfileSummary {
    /// Command line of the recording program.
    pub command: Vec<String>,
    /// Name of the machine.
    pub host: Option<String>,
    /// Version of its kernel.
    pub os_release: Option<String>,
    /// Architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// Version of the recording program.
    pub perf_version: Option<String>,
    /// Number of CPUs that were online.
    pub cpus: Option<u32>,
    /// Nanoseconds from the first to the last record.
    pub duration_ns: Option<u64>,
    /// Nanoseconds of CPU time, if an event counts them.
    pub cpu_time_ns: Option<u64>,
    /// Labels that the user gave.
    pub labels: BTreeMap<String, String>,
    /// Events. The first one with samples comes first.
    pub events: Vec<EventSummary>,
    /// Threads with samples, those with most samples first.
    pub threads: Vec<ThreadSummary>,
    /// Functions with samples in their own code or below, those with most samples of their own first.
    pub functions: Vec<FunctionProfile>,
    /// Call tree of the first event. A caller comes before the functions that it calls.
    pub stacks: Vec<StackNode>,
    /// Number of samples that `stacks` has in a caller of their function, because their own stack is too rare.
    pub stacks_omitted: u64,
    /// Number of samples without callers because the stacks of the profile are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_callers: u64,
    /// What is incomplete; part of the diagnostics of the summary.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
}

/// What an event counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds of CPU time (`cpu-clock`, `task-clock`).
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Cycles of the CPU (`cycles`).
    #[serde(rename = "cycles")]
    Cycles,
    /// Anything else.
    #[default]
    #[serde(rename = "count", other)]
    Occurrences,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EventSummary {
    /// Name, such as `cycles:u`.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Whether it leaves out the kernel.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub excludes_kernel: bool,
    /// Number of samples.
    pub samples: u64,
    /// Sum of the periods of the samples, in units.
    pub period: u64,
}

impl EventSummary {
    /// Whether samples of the kernel were not recorded. Earlier versions did not write `excludes_kernel`.
    pub fn is_user_only(&self) -> bool {
        self.excludes_kernel || is_user_only(&self.name)
    }

    /// Returns the name without its modifiers, which perf changes if it leaves out the kernel.
    pub fn base_name(&self) -> &str {
        name_and_modifiers(&self.name).0
    }
}

/// Whether the modifiers of an event as perf names it, such as `cycles:upp`, leave out the kernel.
pub fn is_user_only(event: &str) -> bool {
    let (_, modifiers) = name_and_modifiers(event);
    modifiers.contains('u') && !modifiers.contains('k')
}

/// Returns the name of an event and its modifiers. A tracepoint has its name after the colon.
fn name_and_modifiers(event: &str) -> (&str, &str) {
    let is_modifier = |letter| "ukhGHSDPIeWbRp".contains(letter);
    match event.rsplit_once([':', '/']) {
        Some((name, modifiers)) if modifiers.chars().all(is_modifier) => (name, modifiers),
        _ => (event, ""),
    }
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ThreadSummary {
    /// ID of its process.
    pub pid: Option<u32>,
    /// ID of the thread.
    pub tid: Option<u32>,
    /// Last name.
    pub name: Option<String>,
    /// Number of samples.
    pub samples: EventCounts,
}

/// Functions of one name, kind, compiler tier and module.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FunctionProfile {
    /// Name. For [`CodeOrigin::Module`], the name of the module's file.
    pub name: String,
    /// Kind of code.
    pub kind: CodeOrigin,
    /// Runtime of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Cow<'static, str>>,
    /// Source file, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// First line in the source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Compiler tier, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Path of the executable, library or kernel module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Number of functions: recompilations, or different functions of the same name.
    pub functions: u64,
    /// Size of the largest one, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Number of samples in the function's own code.
    #[serde(rename = "self")]
    pub own: EventCounts,
    /// Number of samples in it or in functions that it calls.
    pub total: EventCounts,
    /// Sum of the periods of its own samples.
    pub self_period: EventCounts,
    /// Sum of the periods of all samples in `total`. Earlier versions did not write it.
    pub total_period: EventCounts,
    /// Most frequent callers: indices of functions, with the number of samples of the first event below each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<(u32, u64)>,
}

impl FunctionProfile {
    /// Returns the samples of the first event in the function, and those with it in their stack.
    pub fn counts(&self) -> (u64, u64) {
        let (own, total) = (self.own.first(), self.total.first());
        (own, total.max(own))
    }
}

/// A node of a call tree. In JSON, a list of three numbers; a root has -1 as its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(i64, u32, u64)", into = "(i64, u32, u64)")]
pub struct StackNode {
    /// Index of the caller's node; `None` for a root.
    pub caller: Option<u32>,
    /// Index of the function.
    pub function: u32,
    /// Number of samples in its own code.
    pub own: u64,
}

impl From<(i64, u32, u64)> for StackNode {
    fn from((caller, function, own): (i64, u32, u64)) -> Self {
        // Any other number that is no index becomes one that no tree has.
        let index = |caller| u32::try_from(caller).unwrap_or(u32::MAX);
        Self {
            caller: (caller != -1).then(|| index(caller)),
            function,
            own,
        }
    }
}

impl From<StackNode> for (i64, u32, u64) {
    fn from(node: StackNode) -> Self {
        (node.caller.map_or(-1, i64::from), node.function, node.own)
    }
}

/// Where code is from. In JSON, it is a `kind`, as is in reports what code does (`frames::stream::Kind`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CodeOrigin {
    /// JIT-compiled code.
    Jit,
    /// A symbol of an executable or library.
    Native,
    /// Code of the kernel: a symbol, or a part of it without symbols.
    Kernel,
    /// Code of a file without a symbol.
    Module,
    /// Anything else.
    #[default]
    #[serde(other)]
    Unknown,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
