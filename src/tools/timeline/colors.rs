//! Colors of compilers: the same on all pages.

const BLUE: &str = "#3b7dd8";
const TEAL: &str = "#17a5b8";
const GREEN: &str = "#2fa36b";
const YELLOW: &str = "#c9a800";
const ORANGE: &str = "#f28e2b";
const RED: &str = "#d9464f";
const PINK: &str = "#e377a8";
const PURPLE: &str = "#a66bd4";
const BROWN: &str = "#9c6b4e";
const GREY: &str = "#7d8597";

/// Colors of known compilers. Those of one runtime differ with most kinds of color vision; compilers of several runtimes
/// that do the same have the same color.
const COLORS: &[(&str, &str)] = &[
    ("Ignition", YELLOW),
    ("Sparkplug", GREEN),
    ("Maglev", TEAL),
    ("TurboFan", BLUE),
    ("Liftoff", PINK),
    ("Builtin", BROWN),
    ("RegExp", ORANGE),
    ("Stub", PURPLE),
    ("JSC LLInt", YELLOW),
    ("JSC Baseline", GREEN),
    ("JSC DFG", TEAL),
    ("JSC FTL", BLUE),
    ("JSC IPInt", BROWN),
    ("JSC BBQ", PINK),
    ("JSC OMG", RED),
    ("JSC Yarr", ORANGE),
    ("JSC Thunk", PURPLE),
    ("Interpreter", YELLOW),
    ("Baseline Interpreter", BROWN),
    ("Baseline", GREEN),
    ("Baseline IC", PURPLE),
    ("Ion", BLUE),
    ("Ion IC", RED),
    ("IC", PINK),
    ("Trampoline", GREY),
    ("Wasm", TEAL),
    ("Python", BLUE),
    ("PHP Trace", BLUE),
    ("PHP Function", GREEN),
    ("PreJIT", BROWN),
    ("QuickJitted", YELLOW),
    ("InstrumentedTier", ORANGE),
    ("InstrumentedTierOptimized", PINK),
    ("OptimizedTier1", BLUE),
    ("OptimizedTier1OSR", TEAL),
    ("Optimized", GREEN),
    ("MinOptJitted", PURPLE),
    (super::tiers::OTHERS, GREY),
];

/// Returns the color of a compiler, as `#rrggbb`. That of an unknown name depends on nothing but the name.
pub fn color(tier: &str) -> String {
    let known = COLORS.iter().find(|(name, _)| *name == tier);
    known.map_or_else(|| hue(tier), |(_, color)| (*color).to_owned())
}

/// Returns a color of medium brightness, with a hue that depends on a name.
fn hue(name: &str) -> String {
    /// The values of red, green and blue are between these.
    const LEAST: u64 = 0x48;
    const MOST: u64 = 0xc8;
    // FNV-1a, which is the same on all machines.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (sixth, part) = ((hash >> 32) % 6, (hash >> 40) % (MOST - LEAST));
    let (rising, falling) = (LEAST + part, MOST - part);
    let (red, green, blue) = match sixth {
        0 => (MOST, rising, LEAST),
        1 => (falling, MOST, LEAST),
        2 => (LEAST, MOST, rising),
        3 => (LEAST, falling, MOST),
        4 => (rising, LEAST, MOST),
        _ => (MOST, LEAST, falling),
    };
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitdump::names;

    #[test]
    fn all_known_compilers_have_a_color() {
        for tier in names::all_tiers() {
            assert!(COLORS.iter().any(|(name, _)| *name == tier), "{tier}");
        }
    }

    #[test]
    fn compilers_of_a_runtime_have_different_colors() {
        let v8 = [
            "Ignition",
            "Sparkplug",
            "Maglev",
            "TurboFan",
            "Liftoff",
            "Builtin",
            "RegExp",
            "Stub",
        ];
        let jsc: Vec<&str> = COLORS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| name.starts_with("JSC"))
            .collect();
        let others = [
            "Interpreter",
            "Baseline Interpreter",
            "Baseline",
            "Baseline IC",
            "Ion",
            "Ion IC",
            "IC",
            "Trampoline",
            "Wasm",
        ];
        for tiers in [&v8[..], &jsc, &others] {
            let mut colors: Vec<String> = tiers.iter().map(|tier| color(tier)).collect();
            colors.sort_unstable();
            colors.dedup();
            assert_eq!(colors.len(), tiers.len(), "{tiers:?}");
        }
    }

    #[test]
    fn a_name_always_has_the_same_color() {
        assert_eq!(color("my compiler"), color("my compiler"));
        for name in ["my compiler", "Tier 0", "größe"] {
            let color = color(name);
            assert!(color.len() == 7 && color.starts_with('#'), "{color}");
        }
        assert_ne!(color("Tier 0"), color("Tier 1"));
    }
}
