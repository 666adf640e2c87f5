//! The passes that turn residuals into samples: each adds to a sample a weighted prediction from samples before it.

/// The longest distance of a prediction from one sample.
pub const MAX_DISTANCE: usize = 8;
/// The most that a weight between channels can be, in 1024ths.
const MAX_WEIGHT: i32 = 1024;

/// What a pass predicts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// The sample of the same channel this many before.
    Distance(usize),
    /// Twice the last sample, less the one before it.
    Line,
    /// As `Line`, with half of the difference.
    HalfLine,
    /// The second channel from the first, and the first from the second before.
    SecondFromFirst,
    /// The first channel from the second, and the second from the first before.
    FirstFromSecond,
    /// Each channel from the other one before.
    EachFromOther,
}

impl Term {
    /// Returns the term with this number, for one channel or for two.
    pub fn from_number(number: i32, channels: usize) -> Option<Term> {
        match number {
            1..=8 => usize::try_from(number).ok().map(Term::Distance),
            17 => Some(Term::Line),
            18 => Some(Term::HalfLine),
            -1 if channels == 2 => Some(Term::SecondFromFirst),
            -2 if channels == 2 => Some(Term::FirstFromSecond),
            -3 if channels == 2 => Some(Term::EachFromOther),
            _ => None,
        }
    }

    /// Returns how many samples before a block each channel needs.
    pub fn history(self) -> usize {
        match self {
            Term::Distance(distance) => distance,
            Term::Line | Term::HalfLine => 2,
            _ => 1,
        }
    }
}

/// One pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// What it predicts from.
    pub term: Term,
    /// How fast weights change.
    pub delta: i32,
    /// The weights of the two channels, in 1024ths.
    pub weights: [i32; 2],
    /// Samples before the next one, of each channel. For a distance a ring; otherwise the last one is first.
    pub samples: [[i32; MAX_DISTANCE]; 2],
}

/// Returns the weighted sample.
fn weighted(weight: i32, sample: i32) -> i32 {
    // Of the 64 bits, the lower half is what counts, as everywhere in the format.
    ((i64::from(weight) * i64::from(sample) + 512) >> 10) as i32
}

/// Moves a weight by `delta` towards the sign that would have predicted better.
fn follow(weight: &mut i32, delta: i32, source: i32, residual: i32) {
    if source != 0 && residual != 0 {
        let is_opposite = (source ^ residual) < 0;
        *weight = if is_opposite { weight.wrapping_sub(delta) } else { weight.wrapping_add(delta) };
    }
}

/// Does the same within bounds.
fn follow_within_bounds(weight: &mut i32, delta: i32, source: i32, residual: i32) {
    if source != 0 && residual != 0 {
        let is_opposite = (source ^ residual) < 0;
        *weight = if is_opposite {
            weight.wrapping_sub(delta).max(-MAX_WEIGHT)
        } else {
            weight.wrapping_add(delta).min(MAX_WEIGHT)
        };
    }
}

impl Pass {
    /// Turns the residuals of this pass into samples. Those of two channels alternate.
    pub fn run(&mut self, buffer: &mut [i32], channels: usize) {
        match self.term {
            Term::Distance(_) | Term::Line | Term::HalfLine => {
                for channel in 0..channels {
                    self.run_channel(buffer.iter_mut().skip(channel).step_by(channels.max(1)), channel);
                }
            }
            term => buffer.as_chunks_mut().0.iter_mut().for_each(|pair| self.join(term, pair)),
        }
    }

    fn run_channel<'a>(&mut self, samples: impl Iterator<Item = &'a mut i32>, channel: usize) {
        let (Some(weight), Some(ring)) = (self.weights.get_mut(channel), self.samples.get_mut(channel))
        else {
            return;
        };
        let mut place = 0;
        for sample in samples {
            let [last, before, ..] = *ring;
            let (source, next) = match self.term {
                Term::Line => (last.wrapping_mul(2).wrapping_sub(before), 0),
                Term::HalfLine => (last.wrapping_add(last.wrapping_sub(before) >> 1), 0),
                Term::Distance(distance) => (ring[place], (place + distance) % MAX_DISTANCE),
                _ => (0, 0),
            };
            let restored = weighted(*weight, source).wrapping_add(*sample);
            follow(weight, self.delta, source, *sample);
            if !matches!(self.term, Term::Distance(_)) {
                ring[1] = last;
            }
            ring[next] = restored;
            place = (place + 1) % MAX_DISTANCE;
            *sample = restored;
        }
    }

    /// Restores one sample of each channel from the other channel.
    fn join(&mut self, term: Term, pair: &mut [i32; 2]) {
        let [first, second] = *pair;
        let [last_first, last_second] = [self.samples[0][0], self.samples[1][0]];
        let [weight_first, weight_second] = &mut self.weights;
        let restore = |weight: &mut i32, source: i32, residual: i32| {
            let restored = residual.wrapping_add(weighted(*weight, source));
            follow_within_bounds(weight, self.delta, source, residual);
            restored
        };
        match term {
            Term::SecondFromFirst => {
                pair[0] = restore(weight_first, last_first, first);
                pair[1] = restore(weight_second, pair[0], second);
                self.samples[0][0] = pair[1];
            }
            Term::FirstFromSecond => {
                pair[1] = restore(weight_second, last_second, second);
                pair[0] = restore(weight_first, pair[1], first);
                self.samples[1][0] = pair[0];
            }
            _ => {
                pair[0] = restore(weight_first, last_first, first);
                pair[1] = restore(weight_second, last_second, second);
                self.samples[0][0] = pair[1];
                self.samples[1][0] = pair[0];
            }
        }
    }
}
