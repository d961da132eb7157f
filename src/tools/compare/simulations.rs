//! Tests of the statistics with simulated runs: how often a change is found, and how often by chance.

use crate::tools::compare::testing::Profile;
use crate::tools::compare::{CompareOptions, Comparison, ParsedSummary, Verdict, compare};

/// Shares of the functions of a program; the rest is another function.
const SHARES: [f64; 19] = [
    0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05, 0.05, 0.04, 0.03, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01,
    0.005, 0.005,
];

/// Samples of a run: ten seconds at 999 Hz.
const SAMPLES: f64 = 9990.0;

/// Random numbers that are the same in each run of the tests.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }
}

/// How runs of a program vary.
struct Program {
    /// Relative variation of the whole run.
    run: f64,
    /// Relative variation of each function.
    function: f64,
    /// Factors of the time of the first function and of all others.
    factors: (f64, f64),
}

/// The same program in every run.
const STEADY: Program = Program {
    run: 0.02,
    function: 0.0,
    factors: (1.0, 1.0),
};

impl Program {
    /// Makes the summary of a run.
    fn record(&self, random: &mut Random) -> ParsedSummary {
        let run = (self.run * random.normal()).exp();
        let rest = 1.0 - SHARES.iter().sum::<f64>();
        let counts: Vec<u64> = SHARES
            .into_iter()
            .chain([rest])
            .enumerate()
            .map(|(index, share)| {
                let factor = if index == 0 {
                    self.factors.0
                } else {
                    self.factors.1
                };
                let time = share * factor * run * (self.function * random.normal()).exp();
                let mean = time * SAMPLES;
                let spread = (mean * (1.0 - share)).sqrt();
                (mean + spread * random.normal()).round().max(0.0) as u64
            })
            .collect();
        let all = counts.iter().sum();
        let profile = Profile::new(all).cpu_time(all * 1_001_001);
        let functions = counts.into_iter().enumerate();
        let profile = functions.fold(profile, |profile, (index, samples)| {
            profile.jit(&format!("JS:*f{index} /a.js:{}:1", index + 1), samples)
        });
        profile.parse()
    }

    fn record_all(&self, runs: usize, random: &mut Random) -> Vec<ParsedSummary> {
        (0..runs).map(|_| self.record(random)).collect()
    }
}

fn compared(before: &[ParsedSummary], after: &[ParsedSummary]) -> Comparison {
    let options = CompareOptions::default();
    compare(before, after, &options, false).unwrap().comparison
}

/// Returns how many of `count` pairs of sides fulfil a condition.
fn pairs(
    count: usize,
    (before, runs_before): (&Program, usize),
    (after, runs_after): (&Program, usize),
    accepts: impl Fn(&Comparison) -> bool,
) -> usize {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut pair = || {
        let before = before.record_all(runs_before, &mut random);
        compared(&before, &after.record_all(runs_after, &mut random))
    };
    (0..count).filter(|_| accepts(&pair())).count()
}

#[test]
fn identical_runs_rarely_differ() {
    let noisy = Program {
        run: 0.05,
        function: 0.02,
        ..STEADY
    };
    for (program, before, after) in [
        (&STEADY, 5, 5),
        (&noisy, 5, 5),
        (&noisy, 3, 1),
        (&STEADY, 3, 3),
        (&noisy, 1, 1),
    ] {
        let alarms = pairs(200, (program, before), (program, after), |it| {
            it.verdict != Verdict::Unchanged
        });
        assert!(alarms <= 4, "{before} and {after} runs: {alarms} of 200");
    }
}

#[test]
fn slow_functions_are_found() {
    let slow = Program {
        factors: (1.1, 1.0),
        ..STEADY
    };
    let is_found = |comparison: &Comparison| {
        let first = comparison
            .functions
            .iter()
            .find(|it| it.function.name == "f0")
            .unwrap();
        first.own.is_significant && first.own.change > 0.0 && comparison.verdict == Verdict::Slower
    };
    let found = pairs(50, (&STEADY, 5), (&slow, 5), is_found);
    assert!(found >= 48, "{found} of 50");
}

#[test]
fn slow_functions_make_no_other_function_faster() {
    let slow = Program {
        factors: (1.2, 1.0),
        ..STEADY
    };
    let others = pairs(50, (&STEADY, 5), (&slow, 5), |comparison| {
        let mut functions = comparison.functions.iter();
        functions.any(|it| it.function.name != "f0" && it.own.is_significant)
    });
    // 2 percent, and two standard deviations.
    assert!(others <= 3, "{others} of 50");
}

#[test]
fn uniform_slowness_is_that_of_the_run() {
    let slow = Program {
        run: 0.005,
        factors: (1.05, 1.05),
        ..STEADY
    };
    let fast = Program { run: 0.005, ..STEADY };
    let found = pairs(50, (&fast, 5), (&slow, 5), |comparison| {
        let is_slower = comparison
            .cpu
            .is_some_and(|cpu| cpu.is_significant && cpu.change_percent > 0.0);
        is_slower && comparison.functions.iter().all(|it| !it.own.is_significant)
    });
    assert!(found >= 48, "{found} of 50");
}

#[test]
fn intervals_have_the_true_change() {
    let slow = Program {
        function: 0.01,
        factors: (1.1, 1.0),
        ..STEADY
    };
    let count = 200;
    for (runs_before, runs_after) in [(5, 5), (3, 3), (3, 1)] {
        for (name, change) in [("f0", 2.0), ("f3", 0.0)] {
            let contain = pairs(count, (&STEADY, runs_before), (&slow, runs_after), |comparison| {
                let found = comparison
                    .functions
                    .iter()
                    .find(|it| it.function.name == name)
                    .unwrap();
                (found.own.change - change).abs() <= found.own.margin.unwrap()
            });
            // 97 percent times the part for functions, less two standard deviations.
            assert!(
                contain >= count - 9,
                "{runs_before} and {runs_after} runs, {name}: {contain}"
            );
        }
    }
}
