//! Generated profiles with copies of stacks: each perf unwinds them through all frames.

use jitdump::ByteOrder;

use crate::support::generator::{Generated, Plan, Stacks, generate};
use crate::support::shown::assert_named_by;
use crate::support::{OBJECT_LAYOUTS, inject_into, perf, scratch};

/// Generates a profile, injects it and compares the output of some perf versions.
fn check_through(programs: &[String], plan: &Plan) {
    let folder = scratch();
    let Generated { profile, expected } = generate(folder.path(), plan);
    for layout in OBJECT_LAYOUTS {
        let output = inject_into(folder.path(), &profile, layout);
        for program in programs {
            assert_named_by(program, &output, &expected);
        }
    }
}

#[test]
fn stacks_that_are_unwound_by_tables() {
    let plan = Plan {
        stacks: Stacks::Unwound,
        functions: 300,
        samples: 1000,
        ..Plan::default()
    };
    check_through(&perf::programs(), &plan);
}

#[test]
fn unwound_stacks_of_code_that_is_moved_and_overwritten() {
    // libdw can't distinguish overlapping objects, which partly overwritten code has: only perf with libunwind.
    let plan = Plan {
        functions: 300,
        samples: 1000,
        places: 50,
        moves: true,
        ..Plan::default()
    };
    check_through(
        &["perf".to_owned()],
        &Plan {
            stacks: Stacks::Unwound,
            ..plan
        },
    );
}

/// linux-perf-data finds no times in the records of such a profile.
#[test]
fn a_big_endian_machine() {
    let s390x = 22;
    let plan = Plan {
        endian: ByteOrder::Big,
        machine: s390x,
        places: 200,
        ..Plan::default()
    };
    check_through(&perf::programs(), &plan);
}
