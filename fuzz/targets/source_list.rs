//! Lists of source files: arbitrary ones lead nowhere else, and written ones are read as they were written.

use std::path::{Component, Path};

use jitinject::internals::files::objects::stored_source::{SourceList, StoredSource, read_list};
use jitinject_fuzz::choices::Choices;

pub fn run(input: &[u8]) {
    for (_, _, path) in read_list(&String::from_utf8_lossy(input)) {
        let parts: Vec<Component<'_>> = Path::new(path).components().collect();
        assert!(
            matches!(parts[..], [Component::Normal(_), Component::Normal(_)]),
            "{path:?}"
        );
    }
    let mut choices = Choices::new(input);
    let split = usize::from(choices.u16());
    let rest = choices.rest();
    let (path, text) = rest.split_at(split.min(rest.len()));
    let mut list = SourceList::default();
    let sources = [StoredSource::new(path, text), StoredSource::new(text, path)];
    for source in &sources {
        list.add(source);
    }
    let (_, written) = list.file().unwrap();
    for source in &sources {
        let below = format!("{}/{}", source.folder, source.name);
        let found = read_list(&written).find(|&(_, _, path)| path == below);
        assert_eq!(found.map(|(original, ..)| original), Some(&*source.original));
    }
}
