//! The output: a profile and a folder of objects, which appear whole or not at all.

use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::elf::store::{self, Ownership, Store};
use crate::files::{MappedFile, StagedFile};
use crate::inject::dumps::Found;
use crate::inject::objects::PlacedObject;
use crate::inject::{Error, Options};
use crate::perf::output::{self, Edits, FeatureEdit};
use crate::perf::{Profile, feature, synthesis};

/// Refuses an output that is one of the inputs, or nothing that a profile could be written to.
pub fn refuse_inputs(options: &Options, profile: &MappedFile, found: &Found) -> Result<(), Error> {
    let Ok(metadata) = fs::metadata(&options.output) else {
        return Ok(());
    };
    let number = (metadata.dev(), metadata.ino());
    let dumps = found.dumps.iter().map(|dump| &dump.file);
    for input in std::iter::once(profile).chain(dumps) {
        if input.number() == number {
            return Err(Error::SameFile {
                output: options.output.clone(),
                input: input.path().to_owned(),
            });
        }
    }
    if !metadata.is_file() {
        return Err(Error::Write {
            path: options.output.clone(),
            cause: std::io::Error::other("there is something else than a regular file"),
        });
    }
    Ok(())
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
        let folder = self.store.map(Store::commit).transpose()?.flatten();
        let committed = self.file.commit();
        if committed.is_err()
            && let Some(folder) = folder
        {
            folder.undo().map_err(|cause| error(&self.folder, cause))?;
        }
        committed.map_err(|cause| error(&self.path, cause))
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
