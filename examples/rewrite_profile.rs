//! Writes a profile with the samples of one process only; everything else is unchanged:
//!
//!     cargo run --example rewrite_profile -- testdata/multi/perf.data one.data 4832

// An example reads files of its user.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use jitdump::internals::units::Pid;
use jitinject::internals::files::{InputFile, NameInFolder, StagedFile};
use jitinject::internals::perf::output::{Edits, Rewrite};
use jitinject::internals::perf::sample::Sample;
use jitinject::internals::perf::{Profile, record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: rewrite_profile INPUT OUTPUT PID";
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().ok_or(usage);
    let (input, output, pid) = (argument()?, argument()?, Pid(argument()?.parse()?));

    let file = InputFile::open(Path::new(&input))?;
    let profile = Profile::parse(&file)?;
    let mut edits = Edits::default();
    let mut data_end = 0;
    let mut records = profile.records();
    while let Some(record) = records.next() {
        data_end = record.end();
        // The attribute of the event defines the fields of a sample.
        let attr = profile
            .attrs
            .event_of(&record, profile.endian)
            .filter(|_| record.kind == record::SAMPLE);
        let sample = attr.map(|attr| Sample::parse(&record, attr, profile.endian));
        if sample.is_some_and(|sample| sample.pid != Some(pid)) {
            edits.replace(&record, |_| {});
        }
    }
    let rewrite = Rewrite {
        profile: &profile,
        data_end,
        auxtrace: &[],
        edits,
        build_ids: Vec::new(),
        compression: None,
    };
    // It gets its final name when it is complete.
    let mut staged = StagedFile::create(NameInFolder::of(output.as_ref())?)?;
    rewrite.write_file(staged.file())?;
    staged.commit()?;
    Ok(())
}
