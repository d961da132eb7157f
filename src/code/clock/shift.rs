//! Choice of an offset between clocks, from the bounds of the files and from samples in replaced code.

use crate::code::clock::bound::{OffsetBounds, OffsetEvidence};
use crate::code::clock::recorded_clocks::{MARGIN, ProfileClock};
use crate::code::clock::windows::Plateau;

/// Number of samples that must contradict a bound, or all smaller offsets, to count as evidence. Single samples are
/// also taken in code that no file contains.
const MIN_SAMPLES: u32 = 3;

/// Number of samples that must stop matching within [`MARGIN`] / 4 above a plateau, as samples taken right after a
/// load do, for its upper end to be the true offset. With an offset too great by 1 ms, 2 such samples would be
/// missing; with one too great by the margin, 32.
const MIN_RIGHT_AFTER_LOAD: u32 = 8;

/// An estimated offset between clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Nanoseconds to add to a runtime's time.
    pub(super) offset: i128,
    /// Evidence for the offset.
    pub(super) evidence: OffsetEvidence,
    /// Bound from the file itself.
    pub(super) bound: Option<OffsetBounds>,
    /// Uncertainty of the offset, where it can change names.
    pub(super) doubt: Option<Doubt>,
}

/// Uncertainty of an estimated offset, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// How much smaller the true offset can be.
    pub less: u64,
    /// How much greater the true offset can be.
    pub more: u64,
}

impl Shift {
    /// Determines the offset from a bound of this or another file. `plateau` has the offsets that match most samples,
    /// from [`ProfileClock::least`] up.
    pub(super) fn settle(
        &mut self,
        bound: Option<OffsetBounds>,
        profile: &ProfileClock,
        plateau: Option<&Plateau>,
    ) {
        let Some(bound) = bound else {
            return self.settle_without_bound(profile, plateau);
        };
        let evidence = if self.bound.map(|own| own.best) != Some(bound.best) {
            OffsetEvidence::OtherRuntime
        } else {
            bound.evidence
        };
        let contradiction = plateau.filter(|plateau| {
            !plateau.holds(bound.best)
                && plateau.score.saturating_sub(plateau.score_of(bound.best)) >= MIN_SAMPLES
        });
        let nearer = plateau.and_then(sharp_end).filter(|&nearer| nearer > bound.best);
        (self.offset, self.evidence) = match (contradiction, nearer) {
            (Some(plateau), _) => {
                let end = sharp_end(plateau).unwrap_or_else(|| within(plateau, Some(bound.best)));
                (end, OffsetEvidence::LiveCode)
            }
            (None, Some(nearer)) => (nearer, OffsetEvidence::LiveCode),
            (None, None) => (bound.best, evidence),
        };
        self.doubt = None;
    }

    /// Determines an offset for which no file has a bound: in a plateau that enough samples prefer, or else the usual
    /// one of the profile's clock, moved into the plateau if there is any.
    fn settle_without_bound(&mut self, profile: &ProfileClock, plateau: Option<&Plateau>) {
        let usual = profile.usual_offset();
        let is_evidence =
            |plateau: &&Plateau| plateau.score.saturating_sub(plateau.least_score) >= MIN_SAMPLES;
        let evident = plateau.filter(is_evidence);
        (self.offset, self.evidence, self.doubt) = match (evident, evident.and_then(sharp_end)) {
            (Some(_), Some(end)) => (end, OffsetEvidence::LiveCode, None),
            (Some(plateau), None) => {
                let offset = within(plateau, usual);
                let doubt = Doubt::in_plateau(plateau, offset);
                (offset, OffsetEvidence::LiveCode, Some(doubt))
            }
            (None, _) => {
                let offset = plateau.map_or(usual.unwrap_or(0), |plateau| within(plateau, usual));
                (offset, OffsetEvidence::None, Some(Doubt::ANY))
            }
        };
    }
}

impl Doubt {
    /// Unlimited uncertainty.
    pub(super) const ANY: Self = Self {
        less: u64::MAX,
        more: u64::MAX,
    };

    /// The true offset may be anywhere in the plateau; `offset` is the one that was chosen.
    fn in_plateau(plateau: &Plateau, offset: i128) -> Self {
        Self {
            less: nanoseconds(offset.saturating_sub(plateau.low.into())),
            more: nanoseconds(i128::from(plateau.high).saturating_sub(offset)),
        }
    }
}

fn nanoseconds(distance: i128) -> u64 {
    u64::try_from(distance.max(0)).unwrap_or(u64::MAX)
}

/// Returns an offset that is certainly not too great, and too small by little more than [`MARGIN`] at most, if many
/// samples were taken right after a load. The greatest offset that matches these is too great only by the age of the
/// code at the first of them.
fn sharp_end(plateau: &Plateau) -> Option<i128> {
    let high = i128::from(plateau.high);
    let behind = plateau.score_of(high.saturating_add(MARGIN / 4));
    let end = high.saturating_sub(MARGIN).max(plateau.low.into());
    (plateau.score.saturating_sub(behind) >= MIN_RIGHT_AFTER_LOAD).then_some(end)
}

/// Returns the offset in a plateau nearest to `wanted`, or the greatest if that is `None`. Keeps a distance of
/// [`MARGIN`] from both ends if there is room for it.
fn within(plateau: &Plateau, wanted: Option<i128>) -> i128 {
    let (low, high) = (i128::from(plateau.low), i128::from(plateau.high));
    let margin = MARGIN.min(high.saturating_sub(low) / 2);
    let (low, high) = (low.saturating_add(margin), high.saturating_sub(margin));
    wanted.unwrap_or(high).min(high).max(low)
}
