//! Creates and parses pages of `jitinject timeline`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{capture, jitinject, said, tools};

/// Creates the page of a profile in a directory. Returns its path and the program's standard error.
pub fn page_of(folder: &Path, input: &Path, more: &[&str]) -> (PathBuf, String) {
    let output = folder.join("timeline.html");
    let ran = jitinject()
        .args(["timeline", "-i", tools::text(input), "-o", tools::text(&output)])
        .args(more)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}: {}", ran.status, said(&ran));
    (output, said(&ran))
}

/// Creates the page of a recording, whose dumps may be anywhere in its directory.
pub fn page_of_capture(folder: &Path, name: &str) -> PathBuf {
    let dumps = capture::folder(name);
    page_of(
        folder,
        &capture::profile(name),
        &["--jitdump", tools::text(&dumps)],
    )
    .0
}

/// Values in a page.
pub struct Values(pub Value);

/// A box of the page: a function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub name: String,
    pub pid: u64,
    pub start: u64,
    pub end: u64,
    /// Start on the profile's clock; `None` if it was before the recording.
    pub from: Option<u64>,
    /// End on the profile's clock; `None` if the function was loaded until the end.
    pub until: Option<u64>,
    pub samples: u64,
}

impl Values {
    pub fn of(page: &Path) -> Self {
        let text = std::fs::read_to_string(page).unwrap();
        let (_, rest) = text
            .split_once("<script id=\"values\" type=\"application/json\">")
            .unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        Self(serde_json::from_str(json).unwrap())
    }

    fn column<'v>(&'v self, table: &str, column: &str) -> impl Iterator<Item = &'v Value> {
        self.0[table][column].as_array().unwrap().iter()
    }

    /// Returns a column of integers.
    pub fn numbers(&self, table: &str, column: &str) -> Vec<u64> {
        let numbers = self.column(table, column);
        numbers.map(|number| number.as_u64().unwrap()).collect()
    }

    fn times(&self, column: &str) -> Vec<Option<u64>> {
        let start: u64 = self.0["start"].as_str().unwrap().parse().unwrap();
        let times = self.column("boxes", column);
        times.map(|time| Some(time.as_u64()? + start)).collect()
    }

    fn pid(&self, process: usize) -> u64 {
        self.0["processes"][process]["pid"].as_u64().unwrap()
    }

    /// Returns all boxes.
    pub fn boxes(&self) -> Vec<Placed> {
        let functions = self.numbers("boxes", "function");
        let (regions, offsets) = (self.numbers("boxes", "region"), self.numbers("boxes", "offset"));
        let (sizes, samples) = (self.numbers("boxes", "size"), self.numbers("boxes", "samples"));
        let (from, until) = (self.times("from"), self.times("until"));
        let names = self.numbers("functions", "name");
        let boxes = (0..functions.len()).map(|at| {
            let region = &self.0["regions"][regions[at] as usize];
            let base = u64::from_str_radix(region["base"].as_str().unwrap(), 16).unwrap();
            let name = names[functions[at] as usize] as usize;
            Placed {
                name: self.0["names"][name].as_str().unwrap().to_owned(),
                pid: self.pid(region["process"].as_u64().unwrap() as usize),
                start: base + offsets[at],
                end: base + offsets[at] + sizes[at],
                from: from[at],
                until: until[at],
                samples: samples[at],
            }
        });
        boxes.collect()
    }

    /// Returns process, name, tier and samples of each function.
    pub fn functions(&self) -> Vec<(u64, String, Option<String>, u64)> {
        let (names, processes) = (
            self.numbers("functions", "name"),
            self.numbers("functions", "process"),
        );
        let samples = self.numbers("functions", "samples");
        let tiers: Vec<&Value> = self.column("functions", "tier").collect();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let functions = (0..names.len()).map(|at| {
            (
                self.pid(processes[at] as usize),
                text(&self.0["names"][names[at] as usize]),
                tiers[at]
                    .as_u64()
                    .map(|tier| text(&self.0["tiers"][tier as usize])),
                samples[at],
            )
        });
        functions.collect()
    }

    /// Returns process, outer function, inlined function and samples of each inlined function.
    pub fn inlined(&self) -> Vec<(u64, String, String, u64)> {
        let [outer, name, samples] =
            ["function", "name", "samples"].map(|column| self.numbers("inlined", column));
        let functions = self.functions();
        let row = |at: usize| {
            let (pid, containing, ..) = functions[outer[at] as usize].clone();
            let inlined = self.0["names"][name[at] as usize].as_str().unwrap();
            (pid, containing, inlined.to_owned(), samples[at])
        };
        (0..outer.len()).map(row).collect()
    }

    /// Returns process, series, bin and samples of each part of the recording with samples.
    pub fn share(&self) -> Vec<(u64, u64, u64, u64)> {
        let [process, series, bin, samples] =
            ["process", "series", "bin", "samples"].map(|column| self.numbers("share", column));
        (0..bin.len())
            .map(|at| (self.pid(process[at] as usize), series[at], bin[at], samples[at]))
            .collect()
    }
}
