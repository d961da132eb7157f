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

/// CPU time of a sample at 999 Hz.
const NANOSECONDS_OF_SAMPLE: u64 = 1_001_001;

/// Random numbers that are the same in each run of the tests.
struct Random(u64);

impl Random {
    /// Draws from 0 to 1, by xorshift.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws from the standard normal distribution, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        let (one, other) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }
}

/// A program whose runs vary: times are log-normal, as a busy machine slows a run by a factor.
struct Program {
    /// Standard deviation of the logarithm of a run's factor, nearly its relative variation.
    run: f64,
    /// The same for the factor that a function has of its own in each run.
    function: f64,
    /// What the time of the first function is multiplied by in every run.
    first_factor: f64,
    /// What the time of all others is multiplied by.
    others_factor: f64,
}

/// The same program in every run.
const STEADY: Program = Program {
    run: 0.02,
    function: 0.0,
    first_factor: 1.0,
    others_factor: 1.0,
};

impl Program {
    /// Makes the summary of a run.
    fn record(&self, random: &mut Random) -> ParsedSummary {
        let run_factor = (self.run * random.normal()).exp();
        let rest = 1.0 - SHARES.iter().sum::<f64>();
        let mut counts = vec![self.samples(SHARES[0], self.first_factor * run_factor, random)];
        for share in SHARES.into_iter().skip(1).chain([rest]) {
            counts.push(self.samples(share, self.others_factor * run_factor, random));
        }
        summary_of(&counts)
    }

    /// Draws the samples of a function that takes `share` of an average run, and here `factor` times as long.
    fn samples(&self, share: f64, factor: f64, random: &mut Random) -> u64 {
        let own_factor = (self.function * random.normal()).exp();
        let mean = SAMPLES * share * factor * own_factor;
        // A binomial count, which is nearly normal.
        let deviation = (mean * (1.0 - share)).sqrt();
        (mean + deviation * random.normal()).round().max(0.0) as u64
    }

    fn record_all(&self, runs: usize, random: &mut Random) -> Vec<ParsedSummary> {
        (0..runs).map(|_| self.record(random)).collect()
    }
}

/// Returns the summary of a run whose functions f0, f1 and so on have these samples.
fn summary_of(samples: &[u64]) -> ParsedSummary {
    let all: u64 = samples.iter().sum();
    let empty = Profile::new(all).cpu_time(all * NANOSECONDS_OF_SAMPLE);
    let functions = samples.iter().enumerate();
    let profile = functions.fold(empty, |profile, (index, samples)| {
        profile.jit(&format!("JS:*f{index} /a.js:{}:1", index + 1), *samples)
    });
    profile.parse()
}

fn compared(before: &[ParsedSummary], after: &[ParsedSummary]) -> Comparison {
    let options = CompareOptions::default();
    compare(before, after, &options, false).unwrap().comparison
}

/// Compares `count` pairs of sides, a program and its number of runs each; returns how many comparisons `accepts`.
fn accepted(
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
        let alarms = accepted(200, (program, before), (program, after), |it| {
            it.verdict != Verdict::Unchanged
        });
        assert!(alarms <= 4, "{before} and {after} runs: {alarms} of 200");
    }
}

#[test]
fn slow_functions_are_found() {
    let slow = Program {
        first_factor: 1.1,
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
    let found = accepted(50, (&STEADY, 5), (&slow, 5), is_found);
    assert!(found >= 48, "{found} of 50");
}

#[test]
fn slow_functions_make_no_other_function_faster() {
    let slow = Program {
        first_factor: 1.2,
        ..STEADY
    };
    let others = accepted(50, (&STEADY, 5), (&slow, 5), |comparison| {
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
        first_factor: 1.05,
        others_factor: 1.05,
        ..STEADY
    };
    let fast = Program { run: 0.005, ..STEADY };
    let found = accepted(50, (&fast, 5), (&slow, 5), |comparison| {
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
        first_factor: 1.1,
        ..STEADY
    };
    let count = 200;
    for (runs_before, runs_after) in [(5, 5), (3, 3), (3, 1)] {
        for (name, change) in [("f0", 2.0), ("f3", 0.0)] {
            let contain = accepted(count, (&STEADY, runs_before), (&slow, runs_after), |comparison| {
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
