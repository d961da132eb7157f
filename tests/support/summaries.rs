//! Summaries with a profile, as `jitinject --summary` writes them.

use serde_json::{Value, json};

/// A summary under construction.
#[derive(Clone, Debug)]
pub struct Profile {
    samples: u64,
    summary: Value,
}

impl Profile {
    /// Creates a profile without functions.
    pub fn new(samples: u64) -> Self {
        let unnamed = json!({"before_load": 0, "not_in_dump": 0, "dump_unusable": 0, "no_dump": 0});
        let event = json!({"name": "cpu-clock:u", "unit": "count", "samples": samples, "period": samples});
        let summary = json!({
            "format": 3, "input": "perf.data", "version": "1.2.0",
            "samples": {"total": samples, "jit": 0, "named": 0, "named_percent": 100.0, "unnamed": unnamed},
            "profile": {
                "command": ["node", "app.js"], "host": "ci", "arch": "x86_64", "cpu_time_ns": null, "labels": {},
                "events": [event], "threads": [], "functions": [], "stacks": [], "stacks_omitted": 0,
            },
        });
        let profile = Self { samples, summary };
        profile.threads(1)
    }

    fn profile(&mut self) -> &mut Value {
        &mut self.summary["profile"]
    }

    fn function(&mut self, index: usize) -> &mut Value {
        &mut self.profile()["functions"][index]
    }

    fn add(mut self, function: Value) -> Self {
        self.profile()["functions"].as_array_mut().unwrap().push(function);
        self
    }

    /// Adds a function of JIT code, with the tier that V8's mark in its name means.
    pub fn jit(mut self, name: &str, samples: u64) -> Self {
        let tier = [("JS:*", "TurboFan"), ("JS:~", "Ignition"), ("JS:^", "Sparkplug")]
            .into_iter()
            .find_map(|(prefix, tier)| name.starts_with(prefix).then_some(tier));
        let jit = self.summary["samples"]["jit"].as_u64().unwrap();
        self.summary["samples"]["jit"] = jit.saturating_add(samples).into();
        let mut function = json!({"name": name, "kind": "jit", "runtime": "V8", "functions": 1,
            "self": [samples], "total": [samples], "self_period": [samples], "callers": []});
        if let Some(tier) = tier {
            function["tier"] = tier.into();
        }
        self.add(function)
    }

    /// Adds a function of native code.
    pub fn native(self, name: &str, module: &str, samples: u64) -> Self {
        self.add(
            json!({"name": name, "kind": "native", "module": module, "functions": 1, "self": [samples],
            "total": [samples], "self_period": [samples], "callers": []}),
        )
    }

    /// Sets the samples with a function in their stack.
    pub fn total(mut self, index: usize, samples: u64) -> Self {
        self.function(index)["total"] = json!([samples]);
        self
    }

    /// Sets the event, and the periods of the samples in each function and with it in their stack.
    pub fn periods(mut self, event: &str, periods: &[(u64, u64)]) -> Self {
        let sum: u64 = periods.iter().map(|(own, _)| own).sum();
        for (index, (own, total)) in periods.iter().enumerate() {
            self.function(index)["self_period"] = json!([own]);
            self.function(index)["total_period"] = json!([total]);
        }
        let samples = self.samples;
        self.profile()["events"] =
            json!([{"name": event, "unit": "count", "samples": samples, "period": sum}]);
        self
    }

    /// Sets the size of a function's code.
    pub fn size(mut self, index: usize, size: u64) -> Self {
        self.function(index)["size"] = size.into();
        self
    }

    /// Sets the callers of a function.
    pub fn callers(mut self, index: usize, callers: &[(usize, u64)]) -> Self {
        self.function(index)["callers"] = json!(callers);
        self
    }

    /// Sets the call tree.
    pub fn stacks(mut self, stacks: &[(i64, usize, u64)]) -> Self {
        self.profile()["stacks"] = json!(stacks);
        self
    }

    /// Sets the CPU time in nanoseconds.
    pub fn cpu_time(mut self, time: u64) -> Self {
        self.profile()["cpu_time_ns"] = time.into();
        self
    }

    /// Sets the number of threads.
    pub fn threads(mut self, count: u64) -> Self {
        let samples = self.samples;
        let thread = |tid| json!({"pid": 7, "tid": 7 + tid, "name": "node", "samples": [samples]});
        self.profile()["threads"] = (0..count).map(thread).collect();
        self
    }

    /// Sets a field of the summary, by its JSON pointer.
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        *self.summary.pointer_mut(pointer).unwrap() = value.into();
        self
    }

    /// Returns the summary as JSON.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.summary).unwrap()
    }
}

/// Shape of a program whose runs are summarized: `main` calls `eat`, `parse` and `hash`; `eat` calls `memcpy`.
#[derive(Clone, Debug)]
pub struct Program {
    /// Folder of the sources.
    pub folder: String,
    /// Line of the first function.
    pub line: u64,
    /// Name of `eat`.
    pub eat: String,
    /// Samples in `main`, `eat`, `parse`, `hash` and `memcpy`. Functions without samples are left out.
    pub samples: [u64; 5],
    /// Factor of the CPU time, in percent.
    pub speed: u64,
    /// Variation from run to run, in thousandths.
    pub noise: u64,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            folder: "/home/me/app".into(),
            line: 1,
            eat: "eat".into(),
            samples: [1000, 2000, 3000, 2500, 1500],
            speed: 100,
            noise: 5,
        }
    }
}

impl Program {
    /// Returns the summary of one run. Runs differ a little, each in the same way every time.
    pub fn run(&self, number: u64) -> Profile {
        let Self {
            folder,
            line,
            eat,
            noise,
            ..
        } = self;
        let varied = |index: u64, samples: u64| {
            let part = (number * 7 + index * 5 + number * index * 3) % 11;
            samples * (5000 + part * noise - 5 * noise) / 5000
        };
        let counts: Vec<u64> = (0..)
            .zip(self.samples)
            .map(|(index, it)| varied(index, it))
            .collect();
        let [main, eat_samples, parse, hash, memcpy] = counts[..] else {
            unreachable!()
        };
        let all: u64 = counts.iter().sum();
        let time = all * 1_001_001 * self.speed / 100 * (5000 + (number * 3 % 5) * noise - 2 * noise) / 5000;
        let name = |name: &str, below: u64| format!("JS:*{name} {folder}/src/app.js:{}:3", line + below);
        let mut profile = Profile::new(all)
            .cpu_time(time)
            .jit(&name("main", 0), main)
            .total(0, all)
            .size(0, 400);
        let mut stacks = vec![(-1, 0, main)];
        let mut index = 0;
        let callees = [
            (name(eat, 10), eat_samples, eat_samples + memcpy, 800),
            (name("parse", 20), parse, parse, 2000),
            (name("hash", 30), hash, hash, 600),
        ];
        let mut eat_index = 0;
        for (function, own, total, size) in callees.into_iter().filter(|it| it.1 > 0) {
            index += 1;
            if function.contains(&format!("*{eat} ")) {
                eat_index = index;
            }
            profile = profile
                .jit(&function, own)
                .total(index, total)
                .size(index, size)
                .callers(index, &[(0, total)]);
            stacks.push((0, index, own));
        }
        if memcpy > 0 {
            index += 1;
            profile = profile
                .native("memcpy", "/usr/lib/libc.so.6", memcpy)
                .callers(index, &[(eat_index, memcpy)]);
            stacks.push((eat_index as i64, index, memcpy));
            // A tree is in preorder, so callees of `eat` follow it.
            stacks.sort_by_key(|&(parent, function, _)| {
                (if parent > 0 { eat_index } else { function }, parent)
            });
            let place = |function: usize| stacks.iter().position(|it| it.1 == function).unwrap() as i64;
            let parent = place(eat_index);
            stacks
                .iter_mut()
                .filter(|it| it.1 == index)
                .for_each(|it| it.0 = parent);
        }
        profile.stacks(&stacks)
    }
}
