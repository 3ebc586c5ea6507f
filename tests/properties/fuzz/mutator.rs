//! Small changes to inputs, the same ones for the same seed.

/// Tokens that mean something to one reader or another, between spaces.
const TOKENS: &str = "{ } [ ] , : \" \\ \\u0000 \\ud800 \\n null true -0 1e999 1e-7 9223372036854775808 -1 \n \r\n \0 \
    \x1b[2J \u{202e} {} [] [[[[[[[[ \"a\": \"kind\": \"metadata\": \"status\": \"event\": \"at_ms\": \"items\": \
    - &a *a !!str";

/// No input grows beyond this.
const BYTES_MAX: usize = 16 * 1024;

/// A generator of numbers that look random (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Less than `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// One of the inputs with up to four changes.
pub(crate) fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        change(&mut input, corpus, random);
    }
    input.truncate(BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = at + random.below(input.len() - at + 1).min(random.below(64));
    match random.below(8) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.below(256) as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..end)),
        4 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        5 => {
            // The rest of another input, or a piece of it.
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            let to = if random.below(2) == 0 { other.len() } else { other.len().min(from + 40) };
            input.splice(at..end, other[from..to].iter().copied());
        }
        replaces => {
            let tokens: Vec<_> = TOKENS.split(' ').collect();
            let token = tokens[random.below(tokens.len())];
            let end = if replaces == 6 { end } else { at };
            input.splice(at..end, token.bytes());
        }
    }
}
