//! Jitdumps that grow, shrink, change and are replaced while they are read: code that is there now does not overlap, and is found
//! by its addresses.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use jitdump::Time;
use jitdump::symbolize::Jitdump;
use jitinject_fuzz::choices::Choices;

pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let steps: [(u8, u16); 6] = std::array::from_fn(|_| (choices.byte(), choices.u16()));
    let content = choices.rest();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jit-1.dump");
    let mut file = File::create(&path).unwrap();
    let mut dump = Jitdump::open(&path).unwrap();
    let mut written = 0;
    for (step, number) in steps {
        let number = usize::from(number);
        match step % 5 {
            0 | 1 => {
                let end = (written + number).min(content.len());
                file.write_all(&content[written..end]).unwrap();
                written = end;
            }
            2 => {
                let byte = content.get(number).copied().unwrap_or(step);
                file.write_all_at(&[byte], (number % (written + 1)) as u64)
                    .unwrap();
            }
            3 => file.set_len((number % (written + 1)) as u64).unwrap(),
            _ => {
                let other = folder.path().join("other");
                std::fs::write(&other, content).unwrap();
                std::fs::rename(&other, &path).unwrap();
                file = OpenOptions::new().append(true).open(&path).unwrap();
                written = content.len();
            }
        }
        let _ = dump.update();
        check(&dump);
    }
    let _ = dump.finish();
    check(&dump);
}

fn check(dump: &Jitdump) {
    let mut end = None;
    for (range, function) in dump.functions() {
        assert!(end.is_none_or(|end| end <= range.start));
        end = Some(range.end);
        assert!(function.range.start <= range.start && range.end <= function.range.end);
        let found = dump.function_at(range.start, Time::LAST);
        assert_eq!(found, Some(function));
        let name = dump.symbol(function).map(|symbol| symbol.name);
        let frames = dump.frames(function, range.start);
        if let Some(last) = frames.last().filter(|_| name.is_some()) {
            assert!(!last.is_inlined);
        }
    }
}
