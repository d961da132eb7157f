//! The events of a profile.

use jitdump::printable;

use crate::collections::hash::HashMap;
use crate::collections::indexed_table::index_of;
use crate::perf::{Profile, event_name, feature};
use crate::results::diagnostics::{Diagnostic, Issue};
use crate::results::summary::profile::{EventSummary, Unit};

/// Returns the events, without their samples, and for each the index of the one that its samples count for. Events of cores of
/// different types are one, unless one of them is `wanted`.
pub fn of_profile(profile: &Profile<'_>, wanted: Option<&str>) -> (Vec<EventSummary>, Vec<u32>) {
    let mut events = recorded(profile);
    let counted_as = match wanted {
        Some(name) if events.iter().any(|event| event.name == *name) => {
            join_events(&mut events, |event| event.name.clone())
        }
        _ => join_events(&mut events, on_any_core),
    };
    (events, counted_as)
}

/// Returns the index of the event with a name. Fails if there is none.
pub fn position(events: &[EventSummary], name: &str) -> Result<u32, Diagnostic> {
    let found = events.iter().position(|event| event.name == name);
    found.and_then(|index| u32::try_from(index).ok()).ok_or_else(|| {
        let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
        Diagnostic::new(Issue::EventUnknown)
            .with("event", name)
            .with("events", names.join(", "))
    })
}

/// Returns the events of a profile, without samples. Those without a recorded name have perf's.
fn recorded(profile: &Profile<'_>) -> Vec<EventSummary> {
    let attrs = profile.attrs.all();
    let described = profile.feature(feature::EVENT_DESC).into_iter();
    let mut names: Vec<Option<String>> = described
        .flat_map(|content| feature::event_names(content, profile.endian))
        .take(attrs.len())
        .map(|name| Some(printable(name)))
        .collect();
    if names.len() < attrs.len() {
        let further = names_by_attributes(profile).into_iter().skip(names.len());
        names.extend(further);
    }
    let mut names = names.into_iter();
    let attrs = attrs.iter().enumerate();
    attrs
        .map(|(index, attr)| EventSummary {
            name: names.next().flatten().unwrap_or_else(|| format!("event {index}")),
            unit: attr.unit,
            excludes_kernel: attr.excludes_kernel,
            samples: 0,
            period: 0,
        })
        .collect()
}

/// Returns the name that perf gives to each event, unless several would have the same: those of cgroups differ.
fn names_by_attributes(profile: &Profile<'_>) -> Vec<Option<String>> {
    let entries = profile.attr_entries.iter();
    let names: Vec<Option<String>> = entries
        .map(|entry| event_name::of(&entry.attr, profile.endian))
        .collect();
    let mut counts: HashMap<String, usize> = HashMap::default();
    for name in names.iter().flatten() {
        *counts.entry(name.clone()).or_default() += 1;
    }
    let is_single = |name: &String| counts.get(name) == Some(&1);
    names.into_iter().map(|name| name.filter(is_single)).collect()
}

/// Makes one event of those that count the same on cores of different types, such as `cpu_atom/cycles/P` and
/// `cpu_core/cycles/P`, which perf opens both for `cycles:P`. Returns for each event the index of the one that its samples
/// count for. `perf record -e cycles,cycles -G A,B` opens events of one name, too.
fn join_events(events: &mut [EventSummary], name_of: impl Fn(&EventSummary) -> String) -> Vec<u32> {
    let names: Vec<String> = events.iter().map(name_of).collect();
    let units: Vec<Unit> = events.iter().map(|event| event.unit).collect();
    let mut first_of: HashMap<&str, usize> = HashMap::default();
    let mut counted_as = Vec::with_capacity(events.len());
    for (at, name) in names.iter().enumerate() {
        let first = *first_of.entry(name).or_insert(at);
        let is_same = first != at && units.get(first) == units.get(at);
        if let (Some(event), true) = (events.get_mut(first), is_same) {
            name.clone_into(&mut event.name);
        }
        counted_as.push(index_of(if is_same { first } else { at }));
    }
    counted_as
}

/// Returns the name of an event without the type of the cores.
fn on_any_core(event: &EventSummary) -> String {
    let named = || {
        let (_, rest) = event.name.split_once('/')?;
        let (name, modifiers) = rest.rsplit_once('/')?;
        let separator = if modifiers.is_empty() { "" } else { ":" };
        let is_named = !name.is_empty() && !name.contains(['=', '/']);
        is_named.then(|| format!("{name}{separator}{modifiers}"))
    };
    named().unwrap_or_else(|| event.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_cores_of_different_types_are_one() {
        let cycles = Unit::Cycles;
        let mut events: Vec<EventSummary> = [
            ("cpu_atom/cycles/P", cycles),
            ("cpu_core/cycles/P", cycles),
            ("cpu_atom/cache-misses/", Unit::Occurrences),
            ("cpu_core/cache-misses/", Unit::Occurrences),
            // Only on one type; of another name, unit or encoding; and those without a name.
            ("cpu_core/branches/u", Unit::Occurrences),
            ("cpu_core/cycles/u", cycles),
            ("cpu/cycles/P", Unit::Occurrences),
            ("cpu_atom/event=0x3c/", cycles),
            ("cpu_core/event=0x3c/", cycles),
            ("intel_pt//", Unit::Occurrences),
            ("intel_bts//", Unit::Occurrences),
            // Of different cgroups.
            ("cpu-clock", Unit::Nanoseconds),
            ("cpu-clock", Unit::Nanoseconds),
        ]
        .map(|(name, unit)| EventSummary {
            name: name.to_owned(),
            unit,
            excludes_kernel: false,
            samples: 0,
            period: 0,
        })
        .into();
        assert_eq!(
            join_events(&mut events, on_any_core),
            [0, 0, 2, 2, 4, 5, 6, 7, 8, 9, 10, 11, 11]
        );
        let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
        assert_eq!(names[..2], ["cycles:P", "cpu_core/cycles/P"]);
        assert_eq!(
            names[2..5],
            ["cache-misses", "cpu_core/cache-misses/", "cpu_core/branches/u"]
        );
    }
}
