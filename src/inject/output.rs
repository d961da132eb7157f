//! The output: a profile and a folder of objects, which appear whole or not at all.

use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::elf::store::{self, Ownership, Store};
use crate::files::staged::leads_to_open_file;
use crate::files::{MappedFile, StagedFile};
use crate::inject::dumps::Found;
use crate::inject::objects::PlacedObject;
use crate::inject::{Error, Options};
use crate::perf::output::{self, Edits, FeatureEdit};
use crate::perf::{Profile, feature, synthesis};

/// Refuses to write over what is read, to write two things to one place, and an output that is no file.
pub fn refuse_conflicts(options: &Options, profile: &MappedFile, found: &Found) -> Result<(), Error> {
    let dumps = found.dumps.iter().map(|dump| dump.file.path());
    let given = found.given.iter().map(PathBuf::as_path);
    let inputs: Vec<&Path> = std::iter::once(profile.path())
        .chain(dumps)
        .chain(given)
        .collect();
    for output in std::iter::once(&options.output).chain(&options.summary) {
        if let Some(input) = inputs.iter().find(|input| is_same(input, output)) {
            return Err(Error::SameFile {
                output: output.clone(),
                input: input.to_path_buf(),
            });
        }
    }
    if let Some(summary) = &options.summary {
        let is_in_folder = summary
            .ancestors()
            .any(|folder| is_same(folder, &elf_dir(options)));
        if is_in_folder || is_same(summary, &options.output) {
            return Err(Error::SummaryInTheWay(summary.clone()));
        }
    }
    match fs::metadata(&options.output) {
        Ok(metadata) if !metadata.is_file() || leads_to_open_file(&options.output) => Err(Error::Write {
            path: options.output.clone(),
            cause: std::io::Error::other("there is something else than a regular file"),
        }),
        _ => Ok(()),
    }
}

/// Whether two paths lead to the same file or folder, or would if there were one.
fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    match (number(one), number(other)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => match (std::path::absolute(one), std::path::absolute(other)) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        },
        _ => false,
    }
}

/// The folder for objects that belongs to an output.
pub fn elf_dir(options: &Options) -> PathBuf {
    options.elf_dir.clone().unwrap_or_else(|| {
        let mut name = options.output.clone().into_os_string();
        name.push(".elf");
        name.into()
    })
}

/// An output in the making.
pub struct Output {
    path: PathBuf,
    file: StagedFile,
    folder: PathBuf,
    ownership: Ownership,
    /// Made with the first object.
    store: Option<Store>,
}

impl Output {
    /// Starts an output.
    pub fn create(options: &Options) -> Result<Self, Error> {
        let file = StagedFile::create(&options.output).map_err(|cause| Error::Write {
            path: options.output.clone(),
            cause,
        })?;
        Ok(Self {
            path: options.output.clone(),
            file,
            folder: elf_dir(options),
            ownership: match options.elf_dir {
                Some(_) => Ownership::Shared,
                None => Ownership::OfOutput,
            },
            store: None,
        })
    }

    /// The folder for objects.
    pub fn store(&mut self) -> Result<&mut Store, store::Error> {
        match self.store {
            Some(ref mut store) => Ok(store),
            None => {
                let store = Store::create(&self.folder, self.ownership)?;
                Ok(self.store.insert(store))
            }
        }
    }

    /// Writes the profile, and puts it and the objects in place.
    pub fn finish(
        mut self,
        profile: &Profile<'_>,
        data_end: u64,
        edits: &Edits,
        objects: &[PlacedObject],
    ) -> Result<(), Error> {
        let error = |path: &Path, cause| Error::Write {
            path: path.to_owned(),
            cause,
        };
        let features = build_id_table(profile, objects);
        let mut writer = BufWriter::with_capacity(1 << 20, self.file.file());
        output::write(profile, data_end, edits, &features, &mut writer)
            .and_then(|()| writer.flush())
            .map_err(|cause| error(&self.path, cause))?;
        drop(writer);
        let has_objects = self.store.is_some();
        let stored = self.store.map(Store::commit).transpose()?;
        if let Err(cause) = self.file.commit() {
            if let Some(stored) = stored {
                stored.undo().map_err(|cause| error(&self.folder, cause))?;
            }
            return Err(error(&self.path, cause));
        }
        if !has_objects && self.ownership == Ownership::OfOutput {
            store::remove_stale(&self.folder)?;
        }
        Ok(())
    }
}

/// The profile's table of build-ids, if it has one, with those of the objects.
fn build_id_table(profile: &Profile<'_>, objects: &[PlacedObject]) -> Vec<FeatureEdit> {
    let Some(table) = profile.feature(feature::BUILD_ID) else {
        return Vec::new();
    };
    let mut content = table.to_vec();
    for object in objects {
        synthesis::put_build_id_entry(&mut content, profile.order, &object.build_id, &object.path);
    }
    vec![FeatureEdit {
        id: feature::BUILD_ID,
        content,
    }]
}
